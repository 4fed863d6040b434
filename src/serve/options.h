/* What `sennit serve` was asked for: one struct, its defaults, its tables of options, its checks. */
#ifndef SERVE_OPTIONS_H
#define SERVE_OPTIONS_H

#include "cli/cli.h"

struct sv_options {
    struct cli_engine_opts engine;
    /* where */
    const char *host, *port_file, *alias;
    uint32_t port; /* 0 = the kernel chooses */
    /* who */
    const char *key_file, *tls_cert, *tls_key, *cors_origin;
    bool no_auth;
    /* limits; bytes and seconds */
    uint64_t max_body, body_memory, max_header;
    uint32_t max_connections, queue, max_tokens;
    uint32_t request_timeout, idle_timeout, answer_timeout, stall_timeout, grace;
    /* what is said */
    bool exit_on_failure, log_json, log_prompts, quiet;
    /* faults on purpose, in builds with SENNIT_TEST_HOOKS */
    uint64_t test_fail_step, test_stall_step;
    uint32_t test_stall_ms;
};

enum { SV_MOST_GROUPS = 8 };

void sv_options_defaults(struct sv_options *o);
/* The tables of options that fill *o; returns how many groups there are (at most SV_MOST_GROUPS). */
size_t sv_options_groups(struct sv_options *o, struct opt_group *groups);
/* What no single option can say about itself. CLI_OK, or CLI_USAGE after a message. */
int sv_options_check(const struct sv_options *o);

#endif
