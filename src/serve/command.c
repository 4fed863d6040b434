/* sennit serve: from its options to its exit code. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve/http.h"
#include "serve/json.h"
#include "serve/loop.h"
#include "serve/net.h"
#include "serve/prepare.h"
#include "serve/text.h"

enum { SPARE_FILES = 64 };

static void on_log(void *ctx, sennit_log_level level, const char *message)
{
    const struct sv_server *s = ctx;
    if (level >= SENNIT_LOG_WARN || s->options->engine.verbose)
        sv_log_message(&s->log, level, "%s", message);
}

/* A file's name may be any bytes; the model's must be one that JSON can carry and a client can send back. */
static void make_utf8(char *name)
{
    size_t n = strlen(name), len;
    for (size_t i = 0; i < n; i += len)
        if (sv_utf8_step(name + i, n - i, &len) != SV_UTF8_OK)
            memset(name + i, '?', len);
}

static void name_model(struct sv_facts *f, const struct sv_options *o)
{
    const char *slash = strrchr(o->engine.model, '/'), *base = slash ? slash + 1 : o->engine.model;
    size_t n = strlen(base);
    if (o->alias) {
        snprintf(f->alias, sizeof f->alias, "%s", o->alias);
        return;
    }
    if (n > 5 && strcmp(base + n - 5, ".gguf") == 0)
        n -= 5;
    snprintf(f->alias, sizeof f->alias, "%.*s", (int)(n < 200 ? n : 200), base);
    make_utf8(f->alias);
}

static size_t longest_token(const struct sv_facts *f)
{
    size_t most = 0;
    for (uint32_t id = 0; id < f->info->n_vocab; id++) {
        size_t n = sennit_token_bytes(f->tokenizer, (int32_t)id, true, NULL, 0);
        most = n > most ? n : most;
    }
    return most;
}

static void gather_facts(struct sv_server *s, const struct sennit_model *model)
{
    struct sv_facts *f = &s->facts;
    f->model = model;
    f->info = sennit_model_get_info(model);
    f->tokenizer = sennit_model_tokenizer(model);
    f->created = (int64_t)time(NULL);
    f->developer_role = f->info->chat_template && strstr(f->info->chat_template, "developer");
    f->keep_prompts = s->options->log_prompts;
    f->queue = s->options->queue;
    f->max_tokens = s->options->max_tokens;
    f->longest_token = longest_token(f);
    name_model(f, s->options);
}

static int open_engine(struct sv_server *s)
{
    const struct sv_options *o = s->options;
    struct sennit_engine_options options;
    cli_engine_options(&o->engine, &options);
    options.logger = (struct sennit_logger){on_log, s};
    options.max_waiting = o->queue;
    options.notify = sv_loop_notify;
    options.notify_ctx = s;
    options.test.fail_at_step = o->test_fail_step;
    options.test.stall_at_step = o->test_stall_step;
    options.test.stall_ms = o->test_stall_ms;
    int code = cli_create_engine(&options, s->facts.model, &s->facts.engine);
    if (code != CLI_OK)
        return code;
    const struct sennit_stats *stats = sennit_engine_stats(s->facts.engine);
    const char *pre = o->engine.pre; /* another way to cut text into tokens gives other answers */
    snprintf(s->facts.fingerprint, sizeof s->facts.fingerprint, "sennit-%016llx-n%d-%s%s%s",
             (unsigned long long)s->facts.info->content_hash, SENNIT_NUMERICS, stats->kv_type, pre ? "-" : "",
             pre ? pre : "");
    return CLI_OK;
}

static void say_what_is_in_force(const struct sv_server *s)
{
    const struct sennit_stats *st = sennit_engine_stats(s->facts.engine);
    sv_log_message(&s->log, SENNIT_LOG_INFO,
                   "model '%s': %s, context %llu, %llu MiB of weights; rows %u, waiting %u, threads %u, %s",
                   s->facts.alias, s->facts.info->architecture, (unsigned long long)s->facts.info->context_length,
                   (unsigned long long)(s->facts.info->weight_bytes >> 20), st->max_rows, s->options->queue,
                   st->n_threads, st->isa);
    sv_log_message(&s->log, SENNIT_LOG_INFO, "cache: %llu bytes (--cache-bytes), %llu bytes per token (%s); %s",
                   (unsigned long long)st->cache_budget, (unsigned long long)st->cache_bytes_per_token, st->kv_type,
                   s->facts.fingerprint);
    if (st->cache_budget / st->cache_bytes_per_token < s->facts.info->context_length)
        sv_log_message(
            &s->log, SENNIT_LOG_WARN,
            "the cache budget holds about %llu tokens, fewer than the context: longer requests are refused",
            (unsigned long long)(st->cache_budget / st->cache_bytes_per_token));
    if (!s->facts.info->chat_template)
        sv_log_message(&s->log, SENNIT_LOG_WARN,
                       "the model has no chat template: /v1/completions works, /v1/chat/completions does not");
}

/* From here on signals are for the loop; threads made later inherit that. */
static void block_signals(void)
{
    sigset_t set;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

static bool write_port(const struct sv_options *o, const struct sv_place *place)
{
    if (!o->port_file)
        return true;
    FILE *f = fopen(o->port_file, "w");
    bool ok = f && fprintf(f, "%u\n", place->port) > 0;
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        cli_error("cannot write the port into '%s'", o->port_file);
    return ok;
}

static int serve_at(struct sv_server *s, const struct sv_place *place, const char *cert, const char *key)
{
    struct sennit_error err = {0};
    s->loopback = place->loopback;
    if (!sv_listen(place, &err) || !sv_http_start(s, cert, key, &err)) {
        cli_error("%s", err.message);
        sv_http_stop(s);
        return err.code == SENNIT_FORMAT ? CLI_FILE : CLI_FAILED;
    }
    say_what_is_in_force(s);
    sv_log_message(&s->log, SENNIT_LOG_INFO, "listening on %s://%s:%u", cert ? "https" : "http", place->host,
                   place->port);
    if (!write_port(s->options, place)) {
        sv_http_stop(s);
        return CLI_FAILED;
    }
    return sv_loop_run(s);
}

static int serve_model(struct sv_server *s, const struct sv_place *place, const char *cert, const char *key)
{
    struct sennit_error err = {0};
    block_signals();
    if (!sv_loop_open(s, &err)) {
        cli_error("%s", err.message);
        return CLI_FAILED;
    }
    int code = open_engine(s);
    if (code != CLI_OK)
        return code;
    if (sennit_engine_start(s->facts.engine, &err) != SENNIT_OK)
        return cli_fail(&err);
    s->prepare = sv_prepare_start(&s->facts, &err);
    s->metrics = sv_metrics_create();
    if (s->prepare && s->metrics)
        return serve_at(s, place, cert, key);
    cli_error("%s", err.message[0] ? err.message : "no memory for the server's figures");
    return CLI_FAILED;
}

static int open_and_serve(struct sv_server *s, const struct sv_place *place, const char *cert, const char *key)
{
    struct sennit_model *model = NULL;
    int code = cli_open_model(&s->options->engine, &model);
    if (code != CLI_OK)
        return code;
    gather_facts(s, model);
    code = serve_model(s, place, cert, key);
    sv_prepare_free(s->prepare);
    if (s->facts.engine)
        sennit_engine_stop(s->facts.engine, true);
    sennit_engine_free(s->facts.engine);
    sv_loop_close(s);
    sv_metrics_free(s->metrics);
    sennit_model_free(model);
    return code;
}

/* Certificate and key are secrets of the machine: read once, wiped when the server ends. */
static int serve_with_tls(struct sv_server *s, const struct sv_place *place)
{
    struct cli_text cert = {0}, key = {0};
    const struct sv_options *o = s->options;
    int code = CLI_OK;
    if (o->tls_cert)
        code = cli_read_file(o->tls_cert, "certificate", &cert);
    if (code == CLI_OK && o->tls_key)
        code = cli_read_file(o->tls_key, "private key", &key);
    if (code == CLI_OK)
        code = open_and_serve(s, place, cert.data, key.data);
    if (key.data)
        explicit_bzero(key.data, key.cap);
    cli_text_free(&key);
    cli_text_free(&cert);
    return code;
}

/* Nobody else on the network may use the machine by accident. */
static int check_exposure(const struct sv_options *o, const struct sv_place *place)
{
    if (place->loopback || o->key_file || o->no_auth)
        return CLI_OK;
    cli_error("%s can be reached by other machines: give --api-key-file FILE", place->host);
    cli_hint("--no-auth serves everybody who can reach it");
    return CLI_USAGE;
}

static int serve(const struct sv_options *o)
{
    struct sv_server s = {.options = o,
                          .log = {o->log_json, o->log_prompts, o->quiet, STDERR_FILENO},
                          .listen_fd = -1,
                          .epoll_fd = -1,
                          .engine_fd = -1,
                          .signal_fd = -1};
    struct sennit_error err = {0};
    struct sv_place place;
    if (o->key_file && !(s.keys = sv_keys_load(o->key_file, &err))) {
        cli_error("%s", err.message);
        return CLI_FILE;
    }
    int code = CLI_FAILED;
    if (!sv_want_files((uint64_t)o->max_connections + SPARE_FILES, &err) ||
        !sv_bind(o->host, o->port, &place, &err)) {
        cli_error("%s", err.message);
    } else {
        s.listen_fd = place.fd;
        code = check_exposure(o, &place);
        if (code == CLI_OK)
            code = serve_with_tls(&s, &place);
        if (s.listen_fd >= 0)
            close(s.listen_fd);
    }
    sv_keys_free(s.keys);
    return code;
}

static int run(const struct command *self, int argc, char **argv)
{
    sv_json_init();
    struct sv_options o;
    struct opt_group groups[SV_MOST_GROUPS];
    struct opt_result r;
    sv_options_defaults(&o);
    size_t n = sv_options_groups(&o, groups);
    if (!opts_parse(self, groups, n, argc, argv, &r))
        return CLI_USAGE;
    if (r.help)
        return CLI_OK;
    int code = sv_options_check(&o);
    return code == CLI_OK ? serve(&o) : code;
}

const struct command cmd_serve = {
    .name = "serve",
    .summary = "answer programs that speak OpenAI's API",
    .usage = "-m FILE [options]",
    .details = "POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health, GET /metrics.\n"
               "All running requests share one batch, and each gets the answer that it would have had alone,\n"
               "bit for bit. Ctrl-C or SIGTERM lets running answers finish (--grace); a second one ends at once.\n"
               "A client that closes its connection, or only its sending side, cancels its request.\n"
               "Exit code 5: the engine failed (--exit-on-failure).\n",
    .examples = "  sennit serve -m model.gguf\n"
                "  sennit serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
                "  sennit serve -m model.gguf --max-rows 32 --cache-bytes 8G --log-json\n",
    .run = run,
};
