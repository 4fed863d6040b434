/* The metrics page: read back by a parser of the exposition format that knows nothing of the server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/metrics.h"

/* ---- a page, parsed -------------------------------------------------------------------------------------------- */

enum { MOST = 400, MOST_NAME = 128 };
struct family {
    char name[MOST_NAME], type[16];
    int n_samples;
};
struct sample {
    char name[MOST_NAME], labels[MOST_NAME]; /* labels as they stand, without the braces */
    double value;
};
struct page {
    struct family families[MOST];
    struct sample samples[MOST];
    int n_families, n_samples;
    char wrong[256]; /* "" = well-formed */
};

static bool wrong(struct page *p, const char *what, const char *line)
{
    if (!*p->wrong)
        snprintf(p->wrong, sizeof p->wrong, "%s: '%.120s'", what, line);
    return false;
}

/* [a-zA-Z_:][a-zA-Z0-9_:]* */
static bool take_name(const char **at, char *out)
{
    const char *s = *at;
    size_t n = 0;
    while (isalpha((unsigned char)s[n]) || s[n] == '_' || s[n] == ':' || (n && isdigit((unsigned char)s[n])))
        n++;
    if (!n || n >= MOST_NAME)
        return false;
    memcpy(out, s, n);
    out[n] = '\0';
    *at = s + n;
    return true;
}

/* name="value",... up to the closing brace; in values a backslash comes before \, " and n only. */
static bool take_labels(const char **at, char *out)
{
    const char *s = *at;
    char name[MOST_NAME];
    for (;;) {
        if (!take_name(&s, name) || strchr(name, ':') || *s++ != '=' || *s++ != '"')
            return false;
        for (; *s && *s != '"'; s++)
            if (*s == '\\' && !strchr("\\\"n", *++s))
                return false;
        if (*s++ != '"')
            return false;
        if (*s == '}')
            break;
        if (*s++ != ',')
            return false;
    }
    size_t n = (size_t)(s - *at);
    if (n >= MOST_NAME)
        return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at = s + 1;
    return true;
}

static bool take_comment(struct page *p, const char *line)
{
    static const char *const types[] = {"counter", "gauge", "histogram", "summary", "untyped"};
    const char *at = line + 7;
    char name[MOST_NAME];
    bool is_help = !strncmp(line, "# HELP ", 7);
    if ((!is_help && strncmp(line, "# TYPE ", 7) != 0) || !take_name(&at, name) || *at++ != ' ' || !*at)
        return wrong(p, "neither HELP nor TYPE", line);
    struct family *last = p->n_families ? &p->families[p->n_families - 1] : NULL;
    if (is_help) {
        for (int i = 0; i < p->n_families; i++)
            if (!strcmp(p->families[i].name, name))
                return wrong(p, "a second HELP", line);
        assert_true(p->n_families < MOST);
        struct family *f = &p->families[p->n_families++];
        snprintf(f->name, sizeof f->name, "%s", name);
        return true;
    }
    if (!last || strcmp(last->name, name) != 0 || *last->type || last->n_samples)
        return wrong(p, "a TYPE that does not follow its HELP", line);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i], at))
            snprintf(last->type, sizeof last->type, "%s", at);
    return *last->type || wrong(p, "an unknown type", line);
}

static bool has_suffix(const char *name, const char *base, const char *suffix)
{
    size_t n = strlen(base);
    return !strncmp(name, base, n) && !strcmp(name + n, suffix);
}

/* The sample is one of the family whose HELP and TYPE came last. */
static bool belongs(const struct family *f, const struct sample *s)
{
    if (strcmp(f->type, "histogram") != 0)
        return !strcmp(f->name, s->name);
    return has_suffix(s->name, f->name, "_sum") || has_suffix(s->name, f->name, "_count") ||
           (has_suffix(s->name, f->name, "_bucket") && !strncmp(s->labels, "le=\"", 4));
}

static bool take_sample(struct page *p, const char *line)
{
    const char *at = line;
    char *end;
    assert_true(p->n_samples < MOST);
    struct sample *s = &p->samples[p->n_samples];
    if (!take_name(&at, s->name) || (*at == '{' && (at++, !take_labels(&at, s->labels))) || *at++ != ' ')
        return wrong(p, "no sample", line);
    s->value = strtod(at, &end);
    if (end == at || *end || isspace((unsigned char)*at))
        return wrong(p, "no number", line);
    struct family *f = p->n_families ? &p->families[p->n_families - 1] : NULL;
    if (!f || !*f->type || !belongs(f, s))
        return wrong(p, "a sample without its TYPE", line);
    for (int i = 0; i < p->n_samples; i++)
        if (!strcmp(p->samples[i].name, s->name) && !strcmp(p->samples[i].labels, s->labels))
            return wrong(p, "a sample that was there before", line);
    if (!strcmp(f->type, "counter") && (!has_suffix(f->name + strlen(f->name) - 6, "_total", "") || s->value < 0))
        return wrong(p, "a counter that does not end in _total", line);
    f->n_samples++;
    p->n_samples++;
    return true;
}

static bool parse(struct page *p, const char *text)
{
    *p = (struct page){0};
    while (*text) {
        char line[512];
        const char *end = strchr(text, '\n');
        size_t n = end ? (size_t)(end - text) : 0;
        if (!end || !n || n >= sizeof line)
            return wrong(p, "a line that is empty, endless or has no end", text);
        memcpy(line, text, n);
        line[n] = '\0';
        if (!(*line == '#' ? take_comment(p, line) : take_sample(p, line)))
            return false;
        text = end + 1;
    }
    for (int i = 0; i < p->n_families; i++)
        if (!p->families[i].n_samples)
            return wrong(p, "a family without samples", p->families[i].name);
    return p->n_families > 0;
}

static const struct sample *find(const struct page *p, const char *name, const char *labels)
{
    for (int i = 0; i < p->n_samples; i++)
        if (!strcmp(p->samples[i].name, name) && !strcmp(p->samples[i].labels, labels))
            return &p->samples[i];
    return NULL;
}

static double value(const struct page *p, const char *name, const char *labels)
{
    const struct sample *s = find(p, name, labels);
    if (!s)
        fail_msg("no sample %s{%s}", name, labels);
    return s->value;
}

/* Buckets ascend in bound and count, and the last is +Inf with the count of all. */
static void check_histogram(const struct page *p, const char *base)
{
    double bound = -1, count = 0;
    int n = 0;
    char name[2 * MOST_NAME];
    for (int i = 0; i < p->n_samples; i++) {
        const struct sample *s = &p->samples[i];
        if (!has_suffix(s->name, base, "_bucket"))
            continue;
        double le = strtod(s->labels + 4, NULL); /* le="... */
        assert_true(le > bound && s->value >= count);
        bound = le;
        count = s->value;
        n++;
    }
    assert_true(n > 5 && isinf(bound));
    snprintf(name, sizeof name, "%s_count", base);
    assert_true(value(p, name, "") == count);
    snprintf(name, sizeof name, "%s_sum", base);
    assert_true(value(p, name, "") >= 0);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void write_page(const struct sv_metrics *m, const struct sennit_load *load, const struct sv_gauges *g,
                       struct page *out)
{
    struct sv_buf b = {0};
    sv_metrics_write(m, load, g, &b);
    assert_false(b.failed);
    if (!parse(out, b.data))
        fail_msg("%s", out->wrong);
    sv_buf_release(&b);
}

static void test_parser(void **state)
{
    static struct page p;
    (void)state;
    const char *good = "# HELP a_total Text.\n# TYPE a_total counter\na_total{x=\"1\",y=\"\\\"\"} 1\na_total 2.5e3\n";
    assert_true(parse(&p, good));
    assert_true(value(&p, "a_total", "") == 2500);
    const char *const bad[] = {
        "a 1\n",
        "# HELP a Text.\n# TYPE a gauge\na 1",
        "# HELP a Text.\n# TYPE a gauge\na  1\n",
        "# HELP a Text.\n# TYPE a gauge\na 1,5\n",
        "# HELP a Text.\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a Text.\n# TYPE a gauge\nb 1\n",
        "# HELP a Text.\n# TYPE a gauge\na{x=1} 1\n",
        "# HELP a Text.\n# TYPE a gauge\na{x=\"\\x\"} 1\n",
        "# HELP a Text.\n# TYPE a gauge\na{x=\"1\"\n",
        "# HELP a Text.\n# TYPE a other\na 1\n",
        "# HELP a Text.\n# TYPE a counter\na 1\n",
        "# HELP a Text.\n# TYPE a_total counter\na_total 1\n",
        "# HELP a Text.\n# TYPE a gauge\n",
        "# HELP a Text.\n\n# TYPE a gauge\na 1\n",
        "# HELP a Text.\n# TYPE a histogram\na 1\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(&p, bad[i]))
            fail_msg("accepted: %s", bad[i]);
}

/* Everything is there before anything has happened. */
static void test_from_the_start(void **state)
{
    static struct page p;
    static const char *const reasons[] = {"bad_request", "auth",       "not_found", "too_large", "context",
                                          "budget",      "queue_full", "shutdown",  "engine",    "memory"};
    static const char *const finishes[] = {"stop", "length", "cancelled", "error"};
    struct sv_metrics *m = sv_metrics_create();
    char labels[64];
    (void)state;
    write_page(m, &(struct sennit_load){0}, &(struct sv_gauges){0}, &p);
    assert_int_equal(sizeof reasons / sizeof *reasons, SV_REFUSED_COUNT);
    for (size_t i = 0; i < SV_REFUSED_COUNT; i++) {
        snprintf(labels, sizeof labels, "reason=\"%s\"", reasons[i]);
        assert_true(value(&p, "sennit_refusals_total", labels) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        snprintf(labels, sizeof labels, "finish=\"%s\"", finishes[i]);
        assert_true(value(&p, "sennit_requests_finished_total", labels) == 0);
    }
    assert_true(value(&p, "sennit_responses_total", "status=\"200\"") == 0);
    assert_true(value(&p, "sennit_hangups_total", "") == 0);
    snprintf(labels, sizeof labels, "version=\"%s\",numerics=\"%d\"", SENNIT_VERSION, SENNIT_NUMERICS);
    assert_true(value(&p, "sennit_build_info", labels) == 1);
    for (int i = 0; i < p.n_families; i++)
        if (!strcmp(p.families[i].type, "histogram"))
            check_histogram(&p, p.families[i].name);
    sv_metrics_free(m);
    sv_metrics_free(NULL);
}

static void test_counts(void **state)
{
    static struct page p;
    struct sv_metrics *m = sv_metrics_create();
    (void)state;
    for (int r = 0; r < SV_REFUSED_COUNT; r++)
        for (int i = 0; i <= r; i++)
            sv_metrics_refused(m, (enum sv_refusal)r);
    sv_metrics_refused(m, SV_REFUSED_COUNT);
    sv_metrics_http(m, 200);
    sv_metrics_http(m, 200);
    sv_metrics_http(m, 418);
    sv_metrics_http(m, 0);
    sv_metrics_http(m, 70000);
    sv_metrics_hangup(m);
    sv_metrics_request(m, 0.2, (struct sv_usage){12, 34});
    sv_metrics_request(m, 7200, (struct sv_usage){1, 2});
    write_page(m, &(struct sennit_load){0}, &(struct sv_gauges){0}, &p);
    assert_true(value(&p, "sennit_refusals_total", "reason=\"bad_request\"") == 1);
    assert_true(value(&p, "sennit_refusals_total", "reason=\"memory\"") == SV_REFUSED_COUNT);
    assert_true(value(&p, "sennit_responses_total", "status=\"200\"") == 2);
    assert_true(value(&p, "sennit_responses_total", "status=\"418\"") == 1);
    assert_null(find(&p, "sennit_responses_total", "status=\"419\""));
    assert_true(value(&p, "sennit_hangups_total", "") == 1);
    assert_true(value(&p, "sennit_usage_tokens_total", "kind=\"prompt\"") == 13);
    assert_true(value(&p, "sennit_usage_tokens_total", "kind=\"completion\"") == 36);
    assert_true(value(&p, "sennit_request_seconds_sum", "") == 7200.2);
    assert_true(value(&p, "sennit_request_seconds_bucket", "le=\"1800\"") == 1);
    assert_true(value(&p, "sennit_request_seconds_bucket", "le=\"+Inf\"") == 2);
    sv_metrics_free(m);
}

static void test_histograms(void **state)
{
    static struct page p;
    struct sv_metrics *m = sv_metrics_create();
    (void)state;
    sv_metrics_queue(m, 0);
    sv_metrics_queue(m, 0.001); /* a bound belongs to its bucket */
    sv_metrics_queue(m, 0.0010001);
    sv_metrics_queue(m, 1e6);
    sv_metrics_queue(m, -1);
    sv_metrics_queue(m, NAN);
    sv_metrics_queue(m, INFINITY);
    for (int i = 0; i < 1000; i++) {
        sv_metrics_first_token(m, i * 0.01);
        sv_metrics_per_token(m, i * 0.001);
    }
    write_page(m, &(struct sennit_load){0}, &(struct sv_gauges){0}, &p);
    assert_true(value(&p, "sennit_queue_seconds_bucket", "le=\"0.001\"") == 2);
    assert_true(value(&p, "sennit_queue_seconds_bucket", "le=\"0.005\"") == 3);
    assert_true(value(&p, "sennit_queue_seconds_bucket", "le=\"300\"") == 3);
    assert_true(value(&p, "sennit_queue_seconds_count", "") == 4);
    assert_true(value(&p, "sennit_first_token_seconds_bucket", "le=\"1\"") == 101);
    assert_true(value(&p, "sennit_first_token_seconds_sum", "") == 4995);
    assert_true(value(&p, "sennit_per_token_seconds_bucket", "le=\"0.025\"") == 26);
    check_histogram(&p, "sennit_queue_seconds");
    check_histogram(&p, "sennit_first_token_seconds");
    check_histogram(&p, "sennit_per_token_seconds");
    sv_metrics_free(m);
}

static void test_gauges(void **state)
{
    static struct page p;
    struct sv_metrics *m = sv_metrics_create();
    struct sennit_load load = {.rows_running = 3,
                               .rows_waiting = 4,
                               .max_rows = 16,
                               .max_waiting = 64,
                               .cache_budget = UINT64_C(1) << 40,
                               .cache_reserved = 1000,
                               .cache_sessions = 300,
                               .cache_bytes = 550,
                               .heap_bytes = 77,
                               .heap_peak = 99,
                               .n_steps = 5,
                               .n_prompt_tokens = 6,
                               .n_answer_tokens = 7,
                               .n_requests = 8,
                               .ms_in_step = 1500};
    load.n_finished[SENNIT_FINISH_LENGTH] = 2;
    struct sv_gauges g = {
        .n_connections = 9, .n_jobs = 10, .n_streams = 11, .body_bytes = 12, .body_limit = 13, .healthy = true};
    (void)state;
    write_page(m, &load, &g, &p);
    const struct {
        const char *name, *labels;
        double value;
    } want[] = {
        {"sennit_rows_running", "", 3},
        {"sennit_rows_waiting", "", 4},
        {"sennit_rows_max", "", 16},
        {"sennit_queue_limit", "", 64},
        {"sennit_cache_bytes", "use=\"rows\"", 700},
        {"sennit_cache_bytes", "use=\"sessions\"", 300},
        {"sennit_cache_bytes", "use=\"live\"", 550},
        {"sennit_cache_budget_bytes", "", 1099511627776.0},
        {"sennit_heap_bytes", "", 77},
        {"sennit_heap_peak_bytes", "", 99},
        {"sennit_step_age_seconds", "", 1.5},
        {"sennit_steps_total", "", 5},
        {"sennit_tokens_total", "kind=\"prompt\"", 6},
        {"sennit_tokens_total", "kind=\"answer\"", 7},
        {"sennit_requests_total", "", 8},
        {"sennit_requests_finished_total", "finish=\"length\"", 2},
        {"sennit_connections", "", 9},
        {"sennit_jobs", "", 10},
        {"sennit_streams", "", 11},
        {"sennit_body_bytes", "", 12},
        {"sennit_body_limit_bytes", "", 13},
        {"sennit_healthy", "", 1},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (value(&p, want[i].name, want[i].labels) != want[i].value)
            fail_msg("%s{%s} is not %g", want[i].name, want[i].labels, want[i].value);
    sv_metrics_free(m);
}

static void test_process(void **state)
{
    static struct page p;
    struct sv_metrics *m = sv_metrics_create();
    double now = (double)time(NULL);
    (void)state;
    write_page(m, &(struct sennit_load){0}, &(struct sv_gauges){0}, &p);
    double start = value(&p, "process_start_time_seconds", "");
    assert_true(start <= now + 1 && start > now - 600); /* the test's own time-out */
    assert_true(value(&p, "process_cpu_seconds_total", "") < 600);
    double before = value(&p, "process_open_fds", "");
    assert_true(value(&p, "process_resident_memory_bytes", "") > 100000);
    FILE *one = fopen("/dev/null", "r");
    assert_non_null(one);
    write_page(m, &(struct sennit_load){0}, &(struct sv_gauges){0}, &p);
    assert_true(value(&p, "process_open_fds", "") == before + 1);
    fclose(one);
    sv_metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parser),     cmocka_unit_test(test_from_the_start), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_histograms), cmocka_unit_test(test_gauges),         cmocka_unit_test(test_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
