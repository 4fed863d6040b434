#include "serve/options.h"

#include <stddef.h>
#include <string.h>

#include "serve/text.h"

#define O(field) offsetof(struct sv_options, field)

static const struct opt place_table[] = {
    {"host", 0, OPT_STRING, O(host), "HOST",
     "address to listen on (default 127.0.0.1; [::1] or :: for IPv6). Anything but this machine's own needs "
     "--api-key-file, or --no-auth",
     0, 0, NULL},
    {"port", 'p', OPT_U32, O(port), "N", "port to listen on (default 8080); 0 = the system chooses a free one", 0,
     65535, NULL},
    {"port-file", 0, OPT_STRING, O(port_file), "FILE", "write the port's number into FILE once the server listens", 0,
     0, NULL},
    {"alias", 0, OPT_STRING, O(alias), "NAME",
     "the model's name for clients (default: the file's name without .gguf)", 0, 0, NULL},
    {0},
};

static const struct opt safety_table[] = {
    {"api-key-file", 0, OPT_STRING, O(key_file), "FILE",
     "clients must send one of the keys in FILE (one per line, mode 600)", 0, 0, NULL},
    {"no-auth", 0, OPT_FLAG, O(no_auth), NULL, "listen on other addresses without keys", 0, 0, NULL},
    {"tls-cert", 0, OPT_STRING, O(tls_cert), "FILE", "certificate chain (PEM); serves https", 0, 0, NULL},
    {"tls-key", 0, OPT_STRING, O(tls_key), "FILE", "private key of the certificate (PEM)", 0, 0, NULL},
    {"cors-origin", 0, OPT_STRING, O(cors_origin), "ORIGIN",
     "let pages of this origin use the server from a browser (* = any; default: none)", 0, 0, NULL},
    {0},
};

static const struct opt limit_table[] = {
    {"max-body", 0, OPT_BYTES, O(max_body), "N", "largest request body (default 16M)", 0, 0, NULL},
    {"body-memory", 0, OPT_BYTES, O(body_memory), "N", "all request bodies in memory at once (default 256M)", 0, 0,
     NULL},
    {"max-header", 0, OPT_BYTES, O(max_header), "N", "largest request line and headers, about (default 32K)", 0, 0,
     NULL},
    {"max-connections", 0, OPT_U32, O(max_connections), "N", "open connections; more wait (default 1024)", 1, 1 << 20,
     NULL},
    {"queue", 0, OPT_U32, O(queue), "N", "requests that may wait for a row; more get 429 (default 128)", 1, 1 << 20,
     NULL},
    {"max-tokens", 'n', OPT_U32, O(max_tokens), "N",
     "most tokens of an answer whose request does not say (default 1024)", 1, 1 << 30, NULL},
    {"request-timeout", 0, OPT_U32, O(request_timeout), "S",
     "seconds that a client has to send a whole request (default 30)", 1, 1 << 20, NULL},
    {"idle-timeout", 0, OPT_U32, O(idle_timeout), "S",
     "seconds until a connection on which nothing moves is closed (default 60)", 1, 1 << 20, NULL},
    {"answer-timeout", 0, OPT_U32, O(answer_timeout), "S",
     "seconds that a request may take in all (default 0: no limit); then 504", 0, 1 << 30, NULL},
    {"grace", 0, OPT_U32, O(grace), "S",
     "seconds that running answers get to finish when the server is told to stop (default 30)", 0, 1 << 20, NULL},
    {"stall-timeout", 0, OPT_U32, O(stall_timeout), "S",
     "/health fails when one step takes longer than so many seconds (default 60)", 1, 1 << 20, NULL},
    {"exit-on-failure", 0, OPT_FLAG, O(exit_on_failure), NULL,
     "leave with exit code 5 when the engine fails, after telling every client", 0, 0, NULL},
    {0},
};

static const struct opt log_table[] = {
    {"log-json", 0, OPT_FLAG, O(log_json), NULL, "log lines are JSON objects", 0, 0, NULL},
    {"log-prompts", 0, OPT_FLAG, O(log_prompts), NULL, "log the text of prompts (default: never)", 0, 0, NULL},
    {"quiet", 'q', OPT_FLAG, O(quiet), NULL, "no line per request", 0, 0, NULL},
    {0},
};

#ifdef SENNIT_TEST_HOOKS
static const struct opt test_table[] = {
    {"test-fail-step", 0, OPT_U64, O(test_fail_step), "N", "the engine fails in step N", 0, 0, NULL},
    {"test-stall-step", 0, OPT_U64, O(test_stall_step), "N", "step N takes longer", 0, 0, NULL},
    {"test-stall-ms", 0, OPT_U32, O(test_stall_ms), "N", "... by so many milliseconds", 0, 1 << 30, NULL},
    {0},
};
#endif

void sv_options_defaults(struct sv_options *o)
{
    *o = (struct sv_options){
        .host = "127.0.0.1",
        .port = 8080,
        .max_body = 16 << 20,
        .body_memory = 256 << 20,
        .max_header = 32 << 10,
        .max_connections = 1024,
        .queue = 128,
        .max_tokens = 1024,
        .request_timeout = 30,
        .idle_timeout = 60,
        .grace = 30,
        .stall_timeout = 60,
    };
}

size_t sv_options_groups(struct sv_options *o, struct opt_group *groups)
{
    size_t n = 0;
    groups[n++] = (struct opt_group){"Model", cli_model_table, &o->engine};
    groups[n++] = (struct opt_group){"Where it listens", place_table, o};
    groups[n++] = (struct opt_group){"Who may use it", safety_table, o};
    groups[n++] = (struct opt_group){"Limits", limit_table, o};
    groups[n++] = (struct opt_group){"Log", log_table, o};
    groups[n++] = (struct opt_group){"Engine", cli_engine_table, &o->engine};
#ifdef SENNIT_TEST_HOOKS
    groups[n++] = (struct opt_group){"Faults on purpose, for tests", test_table, o};
#endif
    return n;
}

static int check_sizes(const struct sv_options *o)
{
    if (o->max_body < 1024 || o->max_body > UINT64_C(1) << 32) {
        cli_error("--max-body is %llu; 1K to 4G are possible", (unsigned long long)o->max_body);
        return CLI_USAGE;
    }
    if (o->body_memory < o->max_body) {
        cli_error("--body-memory (%llu) is less than --max-body (%llu): the largest request would never fit",
                  (unsigned long long)o->body_memory, (unsigned long long)o->max_body);
        return CLI_USAGE;
    }
    if (o->max_header < 1024 || o->max_header > 1 << 20) {
        cli_error("--max-header is %llu; 1K to 1M are possible", (unsigned long long)o->max_header);
        return CLI_USAGE;
    }
    return CLI_OK;
}

int sv_options_check(const struct sv_options *o)
{
    if (!o->tls_cert != !o->tls_key) {
        cli_error("--tls-cert and --tls-key belong together: --%s is missing", o->tls_cert ? "tls-key" : "tls-cert");
        return CLI_USAGE;
    }
    if (o->key_file && o->no_auth) {
        cli_error("--api-key-file asks clients for keys, --no-auth does not: give one of them");
        return CLI_USAGE;
    }
    if (o->alias && (o->alias[0] == '\0' || strlen(o->alias) > 200 || !sv_utf8_valid(o->alias, strlen(o->alias)))) {
        cli_error("--alias wants a name of 1 to 200 bytes in UTF-8");
        return CLI_USAGE;
    }
    if (o->cors_origin && (o->cors_origin[0] == '\0' || strpbrk(o->cors_origin, "\r\n \t"))) {
        cli_error("--cors-origin wants an origin such as https://chat.example.org, not '%s'", o->cors_origin);
        return CLI_USAGE;
    }
    return check_sizes(o);
}
