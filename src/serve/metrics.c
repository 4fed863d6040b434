/* Counters and histograms, and the page that shows them. Numbers are written from integers: what printf does with
 * floating point depends on the locale. */
#include "serve/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

enum { MOST_BUCKETS = 16, N_STATUS = 600 };

/* Upper bounds in milliseconds, ascending; 0 ends the list. */
struct buckets {
    const char *name, *help;
    uint32_t ms[MOST_BUCKETS + 1];
};
enum histogram_id { FIRST_TOKEN, REQUEST, PER_TOKEN, QUEUE, N_HISTOGRAMS };
static const struct buckets histograms[N_HISTOGRAMS] = {
    [FIRST_TOKEN] = {"sennit_first_token_seconds",
                     "From the whole request read to its first token.",
                     {10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 60000, 120000, 300000}},
    [REQUEST] = {"sennit_request_seconds",
                 "From the whole request read to the last byte of its answer given.",
                 {50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 60000, 120000, 300000, 600000, 1800000}},
    [PER_TOKEN] = {"sennit_per_token_seconds",
                   "Mean time between the tokens of one choice.",
                   {1, 2, 5, 10, 15, 25, 50, 75, 100, 150, 250, 500, 1000, 2500}},
    [QUEUE] = {"sennit_queue_seconds",
               "From the whole request read to its admission into the batch.",
               {1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 60000, 300000}},
};

static const char *const refusal_names[SV_REFUSED_COUNT] = {
    [SV_REFUSED_BAD_REQUEST] = "bad_request", [SV_REFUSED_AUTH] = "auth",
    [SV_REFUSED_NOT_FOUND] = "not_found",     [SV_REFUSED_TOO_LARGE] = "too_large",
    [SV_REFUSED_CONTEXT] = "context",         [SV_REFUSED_BUDGET] = "budget",
    [SV_REFUSED_QUEUE_FULL] = "queue_full",   [SV_REFUSED_SHUTDOWN] = "shutdown",
    [SV_REFUSED_ENGINE] = "engine",           [SV_REFUSED_MEMORY] = "memory",
};

struct histogram {
    uint64_t counts[MOST_BUCKETS + 1]; /* each value in the first bucket that holds it; the last one is +Inf */
    uint64_t sum_ns;
};

struct sv_metrics {
    struct histogram histograms[N_HISTOGRAMS];
    uint64_t refused[SV_REFUSED_COUNT];
    uint64_t responses[N_STATUS];
    uint64_t n_hangups;
    struct sv_usage usage;
    uint64_t start_ns; /* of the process, since 1970 */
};

/* ---- counting -------------------------------------------------------------------------------------------------- */

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    return clock_gettime(id, &t) ? 0 : (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The first numbers of a file of /proc, after the last ')' if there is one: a program's name may hold blanks. */
static bool proc_numbers(const char *path, uint64_t *out, int n)
{
    char text[1024];
    FILE *f = fopen(path, "re");
    size_t got = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[got] = '\0';
    const char *name_end = strrchr(text, ')');
    char *at = text, *end;
    if (name_end && strlen(name_end) > 3)
        at = text + (name_end - text) + 3; /* ") S": the state is a letter */
    for (int i = 0; i < n && got; i++) {
        out[i] = strtoull(at, &end, 10);
        if (end == at)
            return false;
        at = end;
    }
    return got > 0;
}

/* The kernel gives the start in ticks since boot. Where it does not, now is as near as can be known. */
static uint64_t process_start_ns(void)
{
    enum { STARTTIME = 18 }; /* field 22 of /proc/self/stat, of which the first three are not counted */
    uint64_t fields[STARTTIME + 1], now = clock_ns(CLOCK_REALTIME), up = clock_ns(CLOCK_BOOTTIME);
    long ticks = sysconf(_SC_CLK_TCK);
    if (ticks <= 0 || !proc_numbers("/proc/self/stat", fields, STARTTIME + 1))
        return now;
    uint64_t started = fields[STARTTIME] * (NS_PER_S / (uint64_t)ticks);
    return started <= up ? now - (up - started) : now;
}

struct sv_metrics *sv_metrics_create(void)
{
    struct sv_metrics *m = calloc(1, sizeof *m);
    if (m)
        m->start_ns = process_start_ns();
    return m;
}

void sv_metrics_free(struct sv_metrics *m)
{
    free(m);
}

void sv_metrics_refused(struct sv_metrics *m, enum sv_refusal why)
{
    if ((unsigned)why < SV_REFUSED_COUNT)
        m->refused[why]++;
}

void sv_metrics_http(struct sv_metrics *m, int status)
{
    if (status >= 100 && status < N_STATUS)
        m->responses[status]++;
}

void sv_metrics_hangup(struct sv_metrics *m)
{
    m->n_hangups++;
}

/* A clock that went wrong must not spoil the sums. */
static void observe(struct sv_metrics *m, enum histogram_id id, double s)
{
    struct histogram *h = &m->histograms[id];
    const uint32_t *ms = histograms[id].ms;
    if (!(s >= 0) || s > 1e9)
        return;
    uint64_t ns = (uint64_t)(s * (double)NS_PER_S + 0.5);
    uint32_t i = 0;
    while (ms[i] && ns > (uint64_t)ms[i] * 1000000)
        i++;
    h->counts[i]++;
    h->sum_ns += ns;
}

void sv_metrics_first_token(struct sv_metrics *m, double s)
{
    observe(m, FIRST_TOKEN, s);
}
void sv_metrics_per_token(struct sv_metrics *m, double s)
{
    observe(m, PER_TOKEN, s);
}
void sv_metrics_queue(struct sv_metrics *m, double s)
{
    observe(m, QUEUE, s);
}

void sv_metrics_request(struct sv_metrics *m, double s, struct sv_usage usage)
{
    observe(m, REQUEST, s);
    m->usage.n_prompt += usage.n_prompt;
    m->usage.n_completion += usage.n_completion;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void head(struct sv_buf *out, const char *name, const char *type, const char *help)
{
    sv_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* label: NULL for a sample without one. */
static void sample(struct sv_buf *out, const char *name, const char *label, const char *value, uint64_t number)
{
    if (label)
        sv_buf_printf(out, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, number);
    else
        sv_buf_printf(out, "%s %" PRIu64 "\n", name, number);
}

static void gauge(struct sv_buf *out, const char *name, const char *help, uint64_t number)
{
    head(out, name, "gauge", help);
    sample(out, name, NULL, NULL, number);
}

static void counter(struct sv_buf *out, const char *name, const char *help, uint64_t number)
{
    head(out, name, "counter", help);
    sample(out, name, NULL, NULL, number);
}

/* Seconds without trailing zeros: "0.025", "10". text: [32]. */
static const char *seconds(char *text, uint64_t ns)
{
    int n = snprintf(text, 32, "%" PRIu64 ".%09" PRIu64, ns / NS_PER_S, ns % NS_PER_S);
    while (text[n - 1] == '0')
        text[--n] = '\0';
    if (text[n - 1] == '.')
        text[--n] = '\0';
    return text;
}

static void write_histogram(const struct sv_metrics *m, enum histogram_id id, struct sv_buf *out)
{
    const struct buckets *b = &histograms[id];
    const struct histogram *h = &m->histograms[id];
    char text[32];
    uint64_t below = 0;
    uint32_t i = 0;
    head(out, b->name, "histogram", b->help);
    for (; b->ms[i]; i++) {
        below += h->counts[i];
        sv_buf_printf(out, "%s_bucket{le=\"%s\"} %" PRIu64 "\n", b->name, seconds(text, b->ms[i] * (uint64_t)1000000),
                      below);
    }
    below += h->counts[i];
    sv_buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", b->name, below);
    sv_buf_printf(out, "%s_sum %s\n%s_count %" PRIu64 "\n", b->name, seconds(text, h->sum_ns), b->name, below);
}

static void write_load(const struct sennit_load *l, struct sv_buf *out)
{
    char text[32];
    gauge(out, "sennit_rows_running", "Rows in the batch.", l->rows_running);
    gauge(out, "sennit_rows_waiting", "Rows that wait for a place in the batch.", l->rows_waiting);
    gauge(out, "sennit_rows_max", "Most rows in the batch.", l->max_rows);
    gauge(out, "sennit_queue_limit", "Most rows that may wait; 0 = no limit.", l->max_waiting);
    head(out, "sennit_cache_bytes", "gauge",
         "Cache memory: promised to rows, held by idle sessions, and live in pages and tables.");
    uint64_t sessions = l->cache_sessions < l->cache_reserved ? l->cache_sessions : l->cache_reserved;
    sample(out, "sennit_cache_bytes", "use", "rows", l->cache_reserved - sessions);
    sample(out, "sennit_cache_bytes", "use", "sessions", sessions);
    sample(out, "sennit_cache_bytes", "use", "live", l->cache_bytes);
    gauge(out, "sennit_cache_budget_bytes", "Limit of what is promised to rows and sessions.", l->cache_budget);
    gauge(out, "sennit_heap_bytes", "All memory of the engine.", l->heap_bytes);
    gauge(out, "sennit_heap_peak_bytes", "The most that it ever was.", l->heap_peak);
    head(out, "sennit_step_age_seconds", "gauge", "Since there is work and no step has ended.");
    sv_buf_printf(out, "sennit_step_age_seconds %s\n", seconds(text, l->ms_in_step * 1000000));
    counter(out, "sennit_steps_total", "Steps of the engine.", l->n_steps);
    head(out, "sennit_tokens_total", "counter", "Tokens that the engine read and chose.");
    sample(out, "sennit_tokens_total", "kind", "prompt", l->n_prompt_tokens);
    sample(out, "sennit_tokens_total", "kind", "answer", l->n_answer_tokens);
    counter(out, "sennit_requests_total", "Rows submitted to the engine; each choice of a request is one.",
            l->n_requests);
    head(out, "sennit_requests_finished_total", "counter", "Rows that ended, by reason.");
    for (int f = SENNIT_FINISH_STOP; f <= SENNIT_FINISH_ERROR; f++)
        sample(out, "sennit_requests_finished_total", "finish", sennit_finish_name((sennit_finish)f),
               l->n_finished[f]);
}

static void write_gauges(const struct sv_gauges *g, struct sv_buf *out)
{
    gauge(out, "sennit_connections", "Open connections.", g->n_connections);
    gauge(out, "sennit_jobs", "Requests that are being answered.", g->n_jobs);
    gauge(out, "sennit_streams", "Answers that are being streamed.", g->n_streams);
    gauge(out, "sennit_body_bytes", "Request bodies in memory.", g->body_bytes);
    gauge(out, "sennit_body_limit_bytes", "Most of them together.", g->body_limit);
    gauge(out, "sennit_healthy", "1 when /health says so.", g->healthy);
}

/* A status that the server is known to send is there from the start, so that its rate can be asked for before it
 * first happens. */
static bool is_usual(int status)
{
    static const int usual[] = {200, 400, 401, 403, 404, 405, 413, 429, 500, 503, 504};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (usual[i] == status)
            return true;
    return false;
}

static void write_http(const struct sv_metrics *m, struct sv_buf *out)
{
    char text[16];
    head(out, "sennit_responses_total", "counter", "Responses begun, by HTTP status.");
    for (int s = 100; s < N_STATUS; s++) {
        if (!m->responses[s] && !is_usual(s))
            continue;
        snprintf(text, sizeof text, "%d", s);
        sample(out, "sennit_responses_total", "status", text, m->responses[s]);
    }
    head(out, "sennit_refusals_total", "counter", "Requests that were refused or could not be answered, by reason.");
    for (int r = 0; r < SV_REFUSED_COUNT; r++)
        sample(out, "sennit_refusals_total", "reason", refusal_names[r], m->refused[r]);
    counter(out, "sennit_hangups_total", "Clients that left before their answer was whole.", m->n_hangups);
    head(out, "sennit_usage_tokens_total", "counter", "Tokens as answers report them in usage.");
    sample(out, "sennit_usage_tokens_total", "kind", "prompt", m->usage.n_prompt);
    sample(out, "sennit_usage_tokens_total", "kind", "completion", m->usage.n_completion);
}

/* ---- the process, under the names that all exporters use ------------------------------------------------------- */

static uint64_t count_fds(void)
{
    uint64_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n ? n - 1 : 0; /* without the one that reads the folder */
}

/* What the system does not tell is left out. */
static void write_process(const struct sv_metrics *m, struct sv_buf *out)
{
    char text[32];
    uint64_t pages[2], n_fds = count_fds();
    struct rlimit limit;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    head(out, "process_cpu_seconds_total", "counter", "User and system time of the process.");
    sv_buf_printf(out, "process_cpu_seconds_total %s\n", seconds(text, clock_ns(CLOCK_PROCESS_CPUTIME_ID)));
    head(out, "process_start_time_seconds", "gauge", "Start of the process, since 1970.");
    sv_buf_printf(out, "process_start_time_seconds %s\n", seconds(text, m->start_ns));
    if (proc_numbers("/proc/self/statm", pages, 2)) {
        gauge(out, "process_virtual_memory_bytes", "Address space of the process.", pages[0] * page_bytes);
        gauge(out, "process_resident_memory_bytes", "Resident memory, the mapped model file included.",
              pages[1] * page_bytes);
    }
    if (n_fds)
        gauge(out, "process_open_fds", "Open file descriptors.", n_fds);
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur != RLIM_INFINITY)
        gauge(out, "process_max_fds", "Most of them.", limit.rlim_cur);
}

void sv_metrics_write(const struct sv_metrics *m, const struct sennit_load *load, const struct sv_gauges *gauges,
                      struct sv_buf *out)
{
    head(out, "sennit_build_info", "gauge", "Always 1.");
    sv_buf_printf(out, "sennit_build_info{version=\"%s\",numerics=\"%d\"} 1\n", sennit_version(), SENNIT_NUMERICS);
    write_load(load, out);
    write_gauges(gauges, out);
    write_http(m, out);
    for (int i = 0; i < N_HISTOGRAMS; i++)
        write_histogram(m, (enum histogram_id)i, out);
    write_process(m, out);
}
