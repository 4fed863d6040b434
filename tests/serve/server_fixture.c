#include "serve/server_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SERVERS = 256, MOST_ARGS = 48, START_MS = 20000, STOP_MS = 30000 };

static struct {
    pthread_mutex_t lock;
    char dir[128];
    pid_t pids[MOST_SERVERS]; /* by number; 0 = ended */
    int n;
    char names[MOST_SERVERS][192]; /* of files, to be removed */
    int n_names;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

void sleep_ms(uint32_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

/* ---- files and the end of the program -------------------------------------------------------------------------- */

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t n = 0, cap = 0;
    for (;;) {
        if (n + 1 >= cap)
            text = realloc(text, cap = cap ? cap * 2 : 65536);
        if (!text)
            abort();
        size_t got = f ? fread(text + n, 1, cap - n - 1, f) : 0;
        n += got;
        if (got == 0)
            break;
    }
    if (f)
        fclose(f);
    text[n] = '\0';
    return text;
}

static void show_log(int number)
{
    enum { TAIL = 2500 };
    char path[256];
    snprintf(path, sizeof path, "%s/log.%d", all.dir, number);
    char *text = read_text(path);
    size_t n = strlen(text), from = n > TAIL ? n - TAIL : 0;
    fprintf(stderr, "---- server %d wrote (the last of %zu bytes) ----\n%s\n", number, n, text + from);
    free(text);
}

static void at_end(int status, void *ctx)
{
    (void)ctx;
    fflush(stdout);
    for (int i = 0; i < all.n; i++)
        if (all.pids[i] > 0) {
            kill(all.pids[i], SIGKILL);
            waitpid(all.pids[i], NULL, 0);
        }
    for (int i = 0; i < all.n && status != 0 && status != 77; i++)
        show_log(i);
    for (int i = 0; i < all.n_names; i++)
        unlink(all.names[i]);
    if (all.dir[0])
        rmdir(all.dir);
}

const char *server_file(const char *name)
{
    pthread_mutex_lock(&all.lock);
    if (!all.dir[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(all.dir, sizeof all.dir, "%s/sennit-serve-XXXXXX", tmp && *tmp ? tmp : "/tmp");
        CHECK(mkdtemp(all.dir) != NULL, "cannot make %s", all.dir);
        on_exit(at_end, NULL);
        signal(SIGPIPE, SIG_IGN);
    }
    char path[192];
    int i = 0, n = snprintf(path, sizeof path, "%s/%s", all.dir, name);
    CHECK(n > 0 && (size_t)n < sizeof path, "name too long: %s", name);
    while (i < all.n_names && strcmp(all.names[i], path) != 0)
        i++;
    CHECK(i < MOST_SERVERS, "too many files");
    if (i == all.n_names)
        memcpy(all.names[all.n_names++], path, sizeof path);
    pthread_mutex_unlock(&all.lock);
    return all.names[i];
}

const char *server_tiny_model(uint32_t context)
{
    char name[32];
    snprintf(name, sizeof name, "tiny%u.gguf", context);
    const char *path = server_file(name);
    if (access(path, R_OK) != 0) {
        struct tiny_spec spec = tiny_spec_default();
        spec.context_length = context;
        tiny_model_write(&spec, path);
    }
    return path;
}

/* ---- starting and stopping ------------------------------------------------------------------------------------- */

static const char *numbered(const char *what, int number)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%d", what, number);
    return server_file(name);
}

/* The child: this program becomes another, and ends with its parent. */
_Noreturn static void become(const char *program, const char *const *args, const char *log, pid_t parent)
{
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600), in = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || out < 0 || in < 0)
        _exit(126);
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    signal(SIGPIPE, SIG_DFL);
    char *argv[MOST_ARGS + 1];
    size_t n = 0;
    for (; args[n] && n < MOST_ARGS; n++)
        memcpy(&argv[n], &args[n], sizeof argv[n]);
    argv[n] = NULL;
    execvp(program, argv);
    dprintf(2, "cannot start %s: %s\n", program, strerror(errno));
    _exit(127);
}

static void launch(struct server *s, const char *model, va_list more)
{
    server_file("x"); /* the folder */
    pthread_mutex_lock(&all.lock);
    CHECK(all.n < MOST_SERVERS, "too many servers");
    *s = (struct server){.number = all.n++};
    pthread_mutex_unlock(&all.lock);
    const char *log = numbered("log", s->number), *port = numbered("port", s->number);
    const char *args[MOST_ARGS + 1] = {"sennit", "serve", "-m", model, "--port", "0", "--port-file", port};
    size_t n = 8;
    for (const char *a; (a = va_arg(more, const char *)) != NULL;) {
        CHECK(n < MOST_ARGS, "too many arguments");
        args[n++] = a;
        s->tls = s->tls || strcmp(a, "--tls-cert") == 0;
    }
    args[n] = NULL;
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0)
        become(SENNIT_PROGRAM, args, log, parent);
    s->pid = all.pids[s->number] = pid;
}

int server_wait_exit(struct server *s, int timeout_ms)
{
    double deadline = http_now() + timeout_ms / 1000.0;
    int status = 0;
    for (;;) {
        pid_t got = waitpid(s->pid, &status, WNOHANG);
        CHECK(got >= 0, "waitpid: %s", strerror(errno));
        if (got > 0)
            break;
        if (http_now() > deadline)
            return -1;
        sleep_ms(2);
    }
    s->pid = all.pids[s->number] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void server_start(struct server *s, const char *model, ...)
{
    va_list more;
    va_start(more, model);
    launch(s, model, more);
    va_end(more);
    double deadline = http_now() + START_MS * SLOW / 1000.0;
    const char *path = numbered("port", s->number);
    for (;;) { /* the file is there and whole: a number and a newline */
        char *text = read_text(path), *end;
        unsigned long port = strtoul(text, &end, 10);
        bool there = end != text && *end == '\n' && port > 0 && port < 65536;
        free(text);
        if (there) {
            s->port = (uint16_t)port;
            break;
        }
        int code = server_wait_exit(s, 0);
        CHECK(code < 0, "the server ended with %d instead of serving", code);
        CHECK(http_now() < deadline, "no port file after %d s", START_MS * SLOW / 1000);
        sleep_ms(5);
    }
    if (s->tls)
        return;
    struct http_conn c;
    struct http_response r = {0};
    CHECK(http_connect(&c, s->port), "cannot connect to port %u", s->port);
    http_request(&c, "GET", "/health", "", NULL, 0);
    enum http_result result = http_read(&c, &r, START_MS * SLOW);
    CHECK(result == HTTP_OK && r.status == 200, "/health: %s, %d", http_result_name(result), r.status);
    http_response_free(&r);
    http_close(&c);
}

int server_try(const char *model, char **log, ...)
{
    struct server s;
    va_list more;
    va_start(more, log);
    launch(&s, model, more);
    va_end(more);
    int code = server_wait_exit(&s, 20000 * SLOW);
    if (code < 0) {
        kill(s.pid, SIGKILL);
        server_wait_exit(&s, 20000);
        code = -1;
    }
    *log = server_log(&s);
    return code;
}

void server_stop(struct server *s)
{
    kill(s->pid, SIGTERM);
    int code = server_wait_exit(s, STOP_MS * SLOW);
    CHECK(code == 0, "after SIGTERM the server's exit code was %d", code);
}

char *server_log(const struct server *s)
{
    return read_text(numbered("log", s->number));
}

int server_run(const char *const *args, char **out)
{
    const char *path = server_file("out");
    pid_t parent = getpid(), pid = fork();
    int status = 0;
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0)
        become(args[0], args, path, parent);
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
    *out = read_text(path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- metrics --------------------------------------------------------------------------------------------------- */

static char *metrics(const struct server *s)
{
    struct http_conn c;
    struct http_response r = {0};
    CHECK(http_connect(&c, s->port), "cannot connect for /metrics: %s", strerror(errno));
    http_request(&c, "GET", "/metrics", "Connection: close\r\n", NULL, 0);
    enum http_result result = http_read(&c, &r, 10000 * SLOW);
    CHECK(result == HTTP_OK && r.status == 200, "/metrics: %s, %d", http_result_name(result), r.status);
    char *text = r.body;
    r.body = NULL;
    http_response_free(&r);
    http_close(&c);
    return text;
}

static double find_metric(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return strtod(line + n + 1, NULL);
    run_fail(__FILE__, __LINE__, name, "no such metric in:\n%s", text);
}

double server_metric(const struct server *s, const char *name)
{
    char *text = metrics(s);
    double value = find_metric(text, name);
    free(text);
    return value;
}

struct server_gauges server_gauges(const struct server *s)
{
    char *text = metrics(s);
    struct server_gauges g = {.rows = find_metric(text, "sennit_rows_running"),
                              .waiting = find_metric(text, "sennit_rows_waiting"),
                              .cache_bytes = find_metric(text, "sennit_cache_bytes{use=\"live\"}"),
                              .cache_reserved = find_metric(text, "sennit_cache_bytes{use=\"rows\"}"),
                              .jobs = find_metric(text, "sennit_jobs"),
                              .connections = find_metric(text, "sennit_connections"),
                              .resident_bytes = find_metric(text, "process_resident_memory_bytes")};
    free(text);
    return g;
}

bool server_wait_idle(const struct server *s, int timeout_ms)
{
    double deadline = http_now() + timeout_ms / 1000.0;
    for (;;) {
        struct server_gauges g = server_gauges(s);
        if (g.rows == 0 && g.waiting == 0 && g.cache_bytes == 0 && g.cache_reserved == 0 && g.jobs <= 1 &&
            g.connections <= 1)
            return true;
        if (http_now() > deadline) {
            printf("\n  not idle: %g rows, %g waiting, %g cache bytes, %g reserved, %g jobs, %g connections\n",
                   g.rows, g.waiting, g.cache_bytes, g.cache_reserved, g.jobs, g.connections);
            return false;
        }
        sleep_ms(1);
    }
}

bool server_wait_rows(const struct server *s, uint32_t running, uint32_t waiting, int timeout_ms)
{
    double deadline = http_now() + timeout_ms / 1000.0;
    for (;;) {
        struct server_gauges g = server_gauges(s);
        if (g.rows == running && g.waiting == waiting)
            return true;
        if (http_now() > deadline)
            return false;
        sleep_ms(1);
    }
}
