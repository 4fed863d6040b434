/* bench/serve_load: streaming clients against a server that speaks OpenAI's completions.
 *
 *     serve_load --port 8080 --clients 16 --requests 2 --prompt 256 --gen 256 [--pid PID] [--cpu 1]
 *
 * Every client sends its requests one after another over connections of their own: a prompt of token ids (so that any
 * two servers count the same number; no two prompts share a beginning), greedy, `ignore_eos`, so that an answer has
 * exactly --gen tokens, streamed with usage. One thread and one epoll serve all clients.
 *
 * One JSON object comes out. Times are seconds, from before the connection is opened: ttft_* to the first event with
 * text, itl_* between two such events of one stream (events that arrive in one read are 0 apart), latency_* to the
 * last byte. tokens_per_s is what `usage` counts over the whole run; the number of events must agree with it.
 *
 * With --pid, "cpu" is what each of the server's threads cost during the run, in seconds by thread name, and
 * "overhead" is that of all others over that of those named sn-engine and sn-worker. Threads that end during the run
 * are not seen. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { MOST_CLIENTS = 1024, READ_BYTES = 65536, MOST_LINE_BYTES = 1 << 20, MOST_TASKS = 4096 };

static struct {
    const char *host, *model, *key;
    unsigned port, clients, requests, prompt, gen, first_id, last_id, seed, timeout_s;
    long cpu, pid; /* -1 = none */
} opt = {.host = "127.0.0.1",
         .clients = 16,
         .requests = 1,
         .prompt = 256,
         .gen = 256,
         .first_id = 1000,
         .last_id = 40000,
         .seed = 1,
         .timeout_s = 900,
         .cpu = -1,
         .pid = -1};

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("serve_load: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

static void *need(void *p)
{
    if (p == NULL)
        die("out of memory");
    return p;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- samples -------------------------------------------------------------------------------------------------- */

struct samples {
    double *at;
    size_t n, cap;
};
static struct samples first_tokens, gaps, latencies;

static void sample(struct samples *s, double value)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1024;
        s->at = need(realloc(s->at, s->cap * sizeof *s->at));
    }
    s->at[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank; 0 without samples. */
static double percentile(struct samples *s, unsigned percent)
{
    if (s->n == 0)
        return 0;
    qsort(s->at, s->n, sizeof *s->at, by_value);
    size_t rank = (s->n * percent + 99) / 100;
    return s->at[rank > 0 ? rank - 1 : 0];
}

/* ---- one answer: HTTP, then server-sent events ---------------------------------------------------------------- */

enum http_state { HTTP_HEAD, HTTP_SIZE, HTTP_CHUNK, HTTP_CHUNK_END, HTTP_COUNTED, HTTP_TO_END, HTTP_DONE };

struct text {
    char *data;
    size_t n, cap;
};

struct client {
    int fd; /* -1 = no request under way */
    unsigned index, n_begun;
    enum http_state state;
    uint64_t left;     /* bytes of this chunk, or of the body */
    struct text proto; /* a line of the protocol that is not whole yet */
    struct text line;  /* a line of an event that is not whole yet */
    struct text other; /* the body of an answer that is no stream */
    int status;
    bool stream, chunked, counted, done_seen;
    double start, previous; /* previous: the last event with text, 0 = none yet */
    uint64_t n_events;      /* with text */
    uint64_t n_prompt, n_completion;
};
static uint64_t total_events, total_prompt, total_completion;

static void append(struct text *t, const char *data, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = 2 * (t->n + n + 1);
        t->data = need(realloc(t->data, t->cap));
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = '\0';
    if (t->n > MOST_LINE_BYTES)
        die("a line or an answer of more than %d bytes", MOST_LINE_BYTES);
}

/* What follows "name": in a JSON text, or NULL. Good enough for names that occur once, and far cheaper than a parser:
 * the client may share a CPU with the server that it measures. */
static const char *after_name(const char *json, const char *name)
{
    const char *p = strstr(json, name);
    if (p == NULL)
        return NULL;
    p += strlen(name);
    p += strspn(p, " ");
    if (*p++ != ':')
        return NULL;
    return p + strspn(p, " ");
}

static void read_usage(struct client *c, const char *event)
{
    json_error_t err;
    json_t *root = json_loads(event, 0, &err);
    json_t *usage = json_object_get(root, "usage");
    if (!json_is_object(usage))
        die("an event's usage is no object: %s", event);
    c->n_prompt = (uint64_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
    c->n_completion = (uint64_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    json_decref(root);
}

static void take_event(struct client *c, const char *event, double now)
{
    if (strcmp(event, "[DONE]") == 0) {
        c->done_seen = true;
        return;
    }
    if (strncmp(event, "{\"error\"", 8) == 0)
        die("a stream broke: %s", event);
    const char *text = after_name(event, "\"text\"");
    if (text != NULL && text[0] == '"' && text[1] != '"') {
        if (c->n_events++ == 0)
            sample(&first_tokens, now - c->start);
        else
            sample(&gaps, now - c->previous);
        c->previous = now;
    }
    const char *usage = after_name(event, "\"usage\"");
    if (usage != NULL && *usage == '{')
        read_usage(c, event);
}

static void take_body(struct client *c, const char *data, size_t n, double now)
{
    if (!c->stream) {
        append(&c->other, data, n);
        return;
    }
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t part = end ? (size_t)(end - data) : n;
        append(&c->line, data, part);
        if (end == NULL)
            return;
        if (c->line.n > 0 && c->line.data[c->line.n - 1] == '\r')
            c->line.data[--c->line.n] = '\0';
        if (strncmp(c->line.data, "data:", 5) == 0)
            take_event(c, c->line.data + 5 + strspn(c->line.data + 5, " "), now);
        c->line.n = 0;
        data += part + 1;
        n -= part + 1;
    }
}

static bool header_is(const char *line, const char *name, const char **value)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return false;
    *value = line + n + 1 + strspn(line + n + 1, " \t");
    return true;
}

static void take_head_line(struct client *c, const char *line)
{
    const char *value;
    if (strncmp(line, "HTTP/1.", 7) == 0) {
        c->status = (int)strtol(line + 8, NULL, 10);
    } else if (header_is(line, "transfer-encoding", &value)) {
        c->chunked = strncasecmp(value, "chunked", 7) == 0;
    } else if (header_is(line, "content-length", &value)) {
        c->counted = true;
        c->left = strtoull(value, NULL, 10);
    } else if (header_is(line, "content-type", &value)) {
        c->stream = strncasecmp(value, "text/event-stream", 17) == 0;
    }
}

/* Collects a line of the protocol in c->proto; false until it is whole. */
static bool proto_line(struct client *c, const char **data, size_t *n)
{
    const char *end = memchr(*data, '\n', *n);
    size_t part = end ? (size_t)(end - *data) : *n;
    append(&c->proto, *data, part);
    *data += part + (end != NULL);
    *n -= part + (end != NULL);
    if (end != NULL && c->proto.n > 0 && c->proto.data[c->proto.n - 1] == '\r')
        c->proto.data[--c->proto.n] = '\0';
    return end != NULL;
}

static void take_proto_line(struct client *c, const char *line)
{
    if (c->state == HTTP_HEAD && line[0] != '\0') {
        take_head_line(c, line);
    } else if (c->state == HTTP_HEAD) {
        c->state = c->chunked ? HTTP_SIZE : !c->counted ? HTTP_TO_END : c->left > 0 ? HTTP_COUNTED : HTTP_DONE;
    } else if (c->state == HTTP_SIZE) {
        c->left = strtoull(line, NULL, 16);
        c->state = c->left > 0 ? HTTP_CHUNK : HTTP_DONE; /* trailers are not waited for */
    } else {
        c->state = HTTP_SIZE; /* the line end behind a chunk */
    }
}

static void take_bytes(struct client *c, const char *data, size_t n, double now)
{
    while (n > 0 && c->state != HTTP_DONE) {
        if (c->state == HTTP_HEAD || c->state == HTTP_SIZE || c->state == HTTP_CHUNK_END) {
            if (!proto_line(c, &data, &n))
                return;
            take_proto_line(c, c->proto.data);
            c->proto.n = 0;
            continue;
        }
        size_t part = c->state == HTTP_TO_END || n < c->left ? n : (size_t)c->left;
        take_body(c, data, part, now);
        data += part;
        n -= part;
        if (c->state != HTTP_TO_END && (c->left -= part) == 0)
            c->state = c->state == HTTP_CHUNK ? HTTP_CHUNK_END : HTTP_DONE;
    }
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static struct sockaddr_storage server_address;
static socklen_t server_address_bytes;

static void resolve(void)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char port[16];
    snprintf(port, sizeof port, "%u", opt.port);
    int rc = getaddrinfo(opt.host, port, &hints, &found);
    if (rc != 0)
        die("%s: %s", opt.host, gai_strerror(rc));
    memcpy(&server_address, found->ai_addr, found->ai_addrlen);
    server_address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
}

/* Connects and sends the whole request; blocking, which on one machine is a matter of microseconds. */
static int send_request(const char *method, const char *path, const char *body)
{
    int fd = socket(server_address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server_address, server_address_bytes) != 0)
        die("cannot connect to %s:%u: %s", opt.host, opt.port, strerror(errno));
    char head[1024];
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: %s:%u\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n%s%s%s\r\n",
                     method, path, opt.host, opt.port, strlen(body), opt.key ? "Authorization: Bearer " : "",
                     opt.key ? opt.key : "", opt.key ? "\r\n" : "");
    if (n < 0 || (size_t)n >= sizeof head)
        die("the host or the key is too long");
    struct text all = {0};
    append(&all, head, (size_t)n);
    append(&all, body, strlen(body));
    for (size_t sent = 0; sent < all.n;) {
        ssize_t rc = send(fd, all.data + sent, all.n - sent, MSG_NOSIGNAL);
        if (rc < 0 && errno != EINTR)
            die("cannot send a request: %s", strerror(errno));
        sent += rc > 0 ? (size_t)rc : 0;
    }
    free(all.data);
    return fd;
}

/* The id of the one model that the server has. */
static char *ask_model(void)
{
    struct client c = {.fd = send_request("GET", "/v1/models", "")};
    static char data[READ_BYTES];
    ssize_t n;
    while (c.state != HTTP_DONE && (n = read(c.fd, data, sizeof data)) > 0)
        take_bytes(&c, data, (size_t)n, 0);
    close(c.fd);
    json_error_t err;
    json_t *root = c.status == 200 && c.other.n > 0 ? json_loads(c.other.data, 0, &err) : NULL;
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(root, "data"), 0), "id"));
    if (id == NULL)
        die("GET /v1/models: HTTP %d and no model's id", c.status);
    char *copy = need(strdup(id));
    json_decref(root);
    free(c.other.data);
    free(c.proto.data);
    return copy;
}

static char *make_body(unsigned client, unsigned request)
{
    json_t *ids = need(json_array());
    uint64_t x = (((uint64_t)opt.seed << 20) + client) * 4096 + request;
    for (unsigned i = 0; i < opt.prompt; i++) {
        /* splitmix64 */
        uint64_t z = (x += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        json_array_append_new(ids, json_integer((json_int_t)(opt.first_id + z % (opt.last_id - opt.first_id + 1))));
    }
    json_t *root = need(json_pack("{s:s, s:o, s:i, s:i, s:b, s:b, s:{s:b}}", "model", opt.model, "prompt", ids,
                                  "max_tokens", (int)opt.gen, "temperature", 0, "ignore_eos", 1, "stream", 1,
                                  "stream_options", "include_usage", 1));
    char *body = need(json_dumps(root, JSON_COMPACT));
    json_decref(root);
    return body;
}

static void begin(struct client *c, int epoll)
{
    char *body = make_body(c->index, c->n_begun++);
    struct client fresh = {.index = c->index, .n_begun = c->n_begun, .start = now_s()};
    fresh.proto = c->proto;
    fresh.line = c->line;
    fresh.other = c->other;
    fresh.proto.n = fresh.line.n = fresh.other.n = 0;
    *c = fresh;
    c->fd = send_request("POST", "/v1/completions", body);
    free(body);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &ev) != 0)
        die("cannot watch a connection: %s", strerror(errno));
}

/* What came must be what was asked for, or the figures mean nothing. */
static void check_answer(const struct client *c)
{
    if (c->status != 200)
        die("HTTP %d: %s", c->status, c->other.n > 0 ? c->other.data : "");
    if (!c->stream || !c->done_seen)
        die("client %u: %s", c->index, c->stream ? "the stream ended without [DONE]" : "the answer is no stream");
    if (c->n_prompt != opt.prompt || c->n_completion != opt.gen)
        die("usage says %llu tokens of prompt and %llu of answer; %u and %u were asked for",
            (unsigned long long)c->n_prompt, (unsigned long long)c->n_completion, opt.prompt, opt.gen);
    /* A token may end inside a character and come with the next one; the last event may be a rest without a token. */
    if (c->n_events > c->n_completion + 1 || c->n_events < c->n_completion / 2)
        die("%llu events with text for %llu tokens", (unsigned long long)c->n_events,
            (unsigned long long)c->n_completion);
}

static void end(struct client *c, double now)
{
    close(c->fd); /* leaves the epoll too */
    c->fd = -1;
    check_answer(c);
    sample(&latencies, now - c->start);
    total_events += c->n_events;
    total_prompt += c->n_prompt;
    total_completion += c->n_completion;
}

/* ---- the server's threads ------------------------------------------------------------------------------------- */

struct thread_time {
    long tid;
    char name[32];
    double s;
};
struct thread_times {
    struct thread_time at[MOST_TASKS];
    size_t n;
};

static bool read_text(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, cap - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}

/* A thread that ends while it is read is left out. */
static void read_threads(struct thread_times *t)
{
    char path[96], text[128];
    snprintf(path, sizeof path, "/proc/%ld/task", opt.pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        die("%s: %s", path, strerror(errno));
    t->n = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL && t->n < MOST_TASKS;) {
        struct thread_time *one = &t->at[t->n];
        one->tid = strtol(e->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%ld/task/%ld/comm", opt.pid, one->tid);
        if (one->tid <= 0 || !read_text(path, one->name, sizeof one->name))
            continue;
        snprintf(path, sizeof path, "/proc/%ld/task/%ld/schedstat", opt.pid, one->tid);
        if (!read_text(path, text, sizeof text))
            continue;
        one->s = strtod(text, NULL) * 1e-9;
        t->n++;
    }
    closedir(dir);
}

static double time_before(const struct thread_times *before, long tid)
{
    for (size_t i = 0; i < before->n; i++) {
        if (before->at[i].tid == tid)
            return before->at[i].s;
    }
    return 0;
}

static void report_threads(json_t *out, const struct thread_times *before, const struct thread_times *after)
{
    json_t *by_name = need(json_object());
    double engine = 0, all = 0;
    for (size_t i = 0; i < after->n; i++) {
        const struct thread_time *one = &after->at[i];
        double s = one->s - time_before(before, one->tid);
        json_object_set_new(by_name, one->name, json_real(json_real_value(json_object_get(by_name, one->name)) + s));
        all += s;
        if (strcmp(one->name, "sn-engine") == 0 || strcmp(one->name, "sn-worker") == 0)
            engine += s;
    }
    json_object_set_new(out, "cpu", by_name);
    json_object_set_new(out, "cpu_s", json_real(all));
    if (engine > 0)
        json_object_set_new(out, "overhead", json_real((all - engine) / engine));
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

static void read_client(struct client *c, int epoll, double deadline, unsigned *left)
{
    static char data[READ_BYTES];
    ssize_t n = read(c->fd, data, sizeof data);
    double now = now_s();
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        die("client %u: %s", c->index, strerror(errno));
    if (n > 0)
        take_bytes(c, data, (size_t)n, now);
    else if (c->state == HTTP_TO_END)
        c->state = HTTP_DONE;
    else
        die("client %u: the connection was closed inside an answer", c->index);
    if (now > deadline)
        die("not done after %u seconds", opt.timeout_s);
    if (c->state != HTTP_DONE)
        return;
    end(c, now);
    if (c->n_begun < opt.requests)
        begin(c, epoll);
    else
        --*left;
}

static double run(struct client *clients)
{
    struct epoll_event events[64];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        die("epoll: %s", strerror(errno));
    double start = now_s();
    unsigned left = opt.clients;
    for (unsigned i = 0; i < opt.clients; i++) {
        clients[i].index = i;
        begin(&clients[i], epoll);
    }
    while (left > 0) {
        int n = epoll_wait(epoll, events, 64, (int)opt.timeout_s * 1000);
        if (n == 0)
            die("nothing came for %u seconds", opt.timeout_s);
        for (int i = 0; i < n; i++)
            read_client(events[i].data.ptr, epoll, start + opt.timeout_s, &left);
    }
    close(epoll);
    return now_s() - start;
}

static void report(json_t *out, double total_s)
{
    struct rusage self;
    getrusage(RUSAGE_SELF, &self);
    double client_s = (double)(self.ru_utime.tv_sec + self.ru_stime.tv_sec) +
                      (double)(self.ru_utime.tv_usec + self.ru_stime.tv_usec) * 1e-6;
    json_t *figures = need(json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f}", "tokens_per_s",
        (double)total_completion / total_s, "ttft_p50", percentile(&first_tokens, 50), "ttft_p95",
        percentile(&first_tokens, 95), "itl_p50", percentile(&gaps, 50), "itl_p95", percentile(&gaps, 95),
        "latency_p50", percentile(&latencies, 50), "latency_p95", percentile(&latencies, 95), "total_s", total_s, "n",
        (json_int_t)latencies.n, "prompt_tokens", (json_int_t)total_prompt, "completion_tokens",
        (json_int_t)total_completion, "events", (json_int_t)total_events, "client_cpu_s", client_s));
    json_object_update(out, figures);
    json_decref(figures);
}

/* ---- options -------------------------------------------------------------------------------------------------- */

static const struct option_row {
    const char *name, *help;
    unsigned *number;
    long *place;
    const char **text;
} options[] = {
    {"--host", "where the server listens (default 127.0.0.1)", NULL, NULL, &opt.host},
    {"--port", "its port", &opt.port, NULL, NULL},
    {"--model", "the model's name (default: what /v1/models lists)", NULL, NULL, &opt.model},
    {"--key", "an API key", NULL, NULL, &opt.key},
    {"--clients", "how many clients at once (default 16)", &opt.clients, NULL, NULL},
    {"--requests", "how many requests each sends (default 1)", &opt.requests, NULL, NULL},
    {"--prompt", "tokens per prompt (default 256)", &opt.prompt, NULL, NULL},
    {"--gen", "tokens per answer (default 256)", &opt.gen, NULL, NULL},
    {"--first-id", "the prompts' ids begin here (default 1000) ...", &opt.first_id, NULL, NULL},
    {"--last-id", "... and end here (default 40000)", &opt.last_id, NULL, NULL},
    {"--seed", "another seed, other prompts (default 1)", &opt.seed, NULL, NULL},
    {"--timeout", "seconds for everything (default 900)", &opt.timeout_s, NULL, NULL},
    {"--cpu", "run on this CPU only", NULL, &opt.cpu, NULL},
    {"--pid", "the server's process: report its threads", NULL, &opt.pid, NULL},
};

static void usage(FILE *to)
{
    fprintf(to, "usage: serve_load --port N [options]\n");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        fprintf(to, "  %-11s %s\n", options[i].name, options[i].help);
}

static void set_option(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const struct option_row *row = &options[i];
        if (strcmp(row->name, name) != 0)
            continue;
        char *rest;
        errno = 0;
        long n = row->text ? 0 : strtol(value, &rest, 10);
        if (!row->text && (errno != 0 || rest == value || *rest != '\0' || n < 0 || n > INT32_MAX))
            die("%s %s: not a number", name, value);
        if (row->text)
            *row->text = value;
        else if (row->place)
            *row->place = n;
        else
            *row->number = (unsigned)n;
        return;
    }
    die("unknown option %s; --help lists them", name);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            exit(0);
        }
        if (i + 1 == argc)
            die("%s needs a value", argv[i]);
        set_option(argv[i], argv[i + 1]);
    }
    if (opt.port == 0 || opt.port > 65535)
        die("--port is missing or no port");
    if (opt.clients < 1 || opt.clients > MOST_CLIENTS || opt.requests < 1 || opt.requests > 4096 || opt.prompt < 1 ||
        opt.gen < 2 || opt.last_id < opt.first_id || opt.timeout_s < 1 || opt.timeout_s > 86400)
        die("an option is out of range");
}

int main(int argc, char **argv)
{
    static struct client clients[MOST_CLIENTS];
    static struct thread_times before, after;
    read_options(argc, argv);
    if (opt.cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)opt.cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0)
            die("cannot run on CPU %ld: %s", opt.cpu, strerror(errno));
    }
    resolve();
    char *model = opt.model ? NULL : ask_model();
    if (model != NULL)
        opt.model = model;
    json_t *out = need(json_object());
    if (opt.pid > 0)
        read_threads(&before);
    double total_s = run(clients);
    if (opt.pid > 0)
        read_threads(&after);
    report(out, total_s);
    if (opt.pid > 0)
        report_threads(out, &before, &after);
    json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(out);
    free(model);
    return 0;
}
