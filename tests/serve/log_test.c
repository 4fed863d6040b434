/* Log lines: their form, one write for each, and that no client can forge one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "serve/log.h"

/* A datagram is one write: what a second write would say is a second datagram. */
static int ends[2];

static int setup(void **state)
{
    int bytes = 1 << 20;
    (void)state;
    return socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) ||
           setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static int teardown(void **state)
{
    (void)state;
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* The one line that was written, without its newline; "" when none was. Static. */
static const char *line_read(void)
{
    static char text[1 << 18];
    char more[8];
    ssize_t n = recv(ends[0], text, sizeof text - 1, MSG_DONTWAIT);
    if (n < 0)
        return "";
    assert_true(n > 0 && text[n - 1] == '\n');
    assert_ptr_equal(memchr(text, '\n', (size_t)n), text + n - 1);
    assert_null(memchr(text, '\0', (size_t)n));
    assert_true(recv(ends[0], more, sizeof more, MSG_DONTWAIT) < 0);
    text[n - 1] = '\0';
    return text;
}

static struct sv_log_options options(void)
{
    return (struct sv_log_options){.fd = ends[1]};
}

static struct sv_log_line example(void)
{
    return (struct sv_log_line){.id = "chatcmpl-1",
                                .method = "POST",
                                .path = "/v1/chat/completions",
                                .client = "127.0.0.1:1234",
                                .http = 200,
                                .finish = "stop",
                                .usage = {12, 34},
                                .n_choices = 1,
                                .stream = true,
                                .queue_s = 0.0014,
                                .first_token_s = 0.05,
                                .total_s = 61.2345};
}

static void expect(const char *line, const char *pattern)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    int no = regexec(&re, line, 0, NULL, 0);
    regfree(&re);
    if (no)
        fail_msg("'%s' is not '%s'", line, pattern);
}

#define TIME "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "

static void test_text(void **state)
{
    struct sv_log_options o = options();
    struct sv_log_line l = example();
    (void)state;
    sv_log_request(&o, &l);
    expect(line_read(), TIME "200 POST /v1/chat/completions id=chatcmpl-1 client=127\\.0\\.0\\.1:1234 prompt=12 "
                             "completion=34 choices=1 stream finish=stop queue=0\\.001s first=0\\.050s "
                             "total=61\\.23[45]s$");
    l = (struct sv_log_line){.method = "GET",
                             .path = "/",
                             .client = "::1",
                             .finish = "refused",
                             .message = "no \"x\"",
                             .queue_s = -1,
                             .first_token_s = -1,
                             .total_s = 0};
    sv_log_request(&o, &l);
    expect(line_read(), TIME "- GET / id=- client=::1 prompt=0 completion=0 choices=0 finish=refused "
                             "total=0\\.000s error=\"no \\\\\"x\\\\\"\"$");
    sv_log_message(&o, SENNIT_LOG_WARN, "a \"%s\" of %d", "thing", 5);
    expect(line_read(), TIME "warn a \"thing\" of 5$");
    o.quiet = true;
    sv_log_request(&o, &l);
    assert_string_equal(line_read(), "");
    sv_log_message(&o, SENNIT_LOG_ERROR, "still said");
    expect(line_read(), TIME "error still said$");
}

/* Prompts are there when they are asked for, and only then. */
static void test_prompts(void **state)
{
    struct sv_log_options o = options();
    struct sv_log_line l = example();
    (void)state;
    l.prompt = "a secret\nof \0 two lines";
    l.n_prompt = 23;
    for (int json = 0; json < 2; json++) {
        o.json = json;
        o.prompts = false;
        sv_log_request(&o, &l);
        assert_null(strstr(line_read(), "secret"));
        o.prompts = true;
        sv_log_request(&o, &l);
        expect(line_read(), json ? ",\"prompt_text\":\"a secret\\\\nof \\\\u0000 two lines\"}$"
                                 : " text=\"a secret\\\\nof \\\\x00 two lines\"$");
    }
    l.n_prompt = 100000;
    char *big = malloc(l.n_prompt);
    memset(big, 'p', l.n_prompt);
    l.prompt = big;
    sv_log_request(&o, &l);
    assert_true(strlen(line_read()) > l.n_prompt);
    free(big);
}

static const char *const attacks[] = {
    "/x\n2026-01-31T12:00:00.123Z 200 GET /forged",
    "/x\r\nforged",
    "/x\r",
    "/x finish=stop id=forged",
    "/x\tfinish=stop",
    "/x\" finish=\"stop",
    "/x\\",
    "\\\" finish=forged",
    "/\x1b[2J\x1b[31mred",
    "/\x07\x08\x7f\x01",
    "/\xc2\x85\xc2\x9b"
    "31m",
    "/\xe2\x80\xa8\xe2\x80\xa9",
    "/\xe2\x80\xae"
    "desrever\xe2\x81\xa6",
    "/\xff\xfe\xc3",
    "/\xc0\x8a\xe0\x80\x8a\xed\xa0\x80\xf4\x90\x80\x80",
    "\",\"finish\":\"forged",
    "",
};

/* Only what a line may hold: printable ASCII, and whole characters that move nothing. */
static void check_clean(const char *line)
{
    for (const unsigned char *s = (const unsigned char *)line; *s; s++)
        if (*s < 0x20 || *s == 0x7f || *s >= 0xf5 || (s[0] == 0xc2 && s[1] < 0xa0) ||
            (s[0] == 0xe2 && s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae))
            fail_msg("byte %02x in '%s'", *s, line);
}

/* Blanks outside of quotes: one attack more would be one field more. */
static int count_fields(const char *line)
{
    int n = 1;
    bool quoted = false;
    for (; *line; line++) {
        if (*line == '\\' && line[1])
            line++;
        else if (*line == '"')
            quoted = !quoted;
        else if (*line == ' ' && !quoted)
            n++;
    }
    assert_false(quoted);
    return n;
}

static void test_injection_text(void **state)
{
    struct sv_log_options o = options();
    (void)state;
    o.prompts = true;
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        const char *bad = attacks[i];
        struct sv_log_line l = example();
        l.id = l.method = l.path = l.client = l.finish = l.message = l.prompt = bad;
        l.n_prompt = strlen(bad);
        sv_log_request(&o, &l);
        const char *line = line_read();
        check_clean(line);
        assert_int_equal(count_fields(line), 16);
        sv_log_message(&o, SENNIT_LOG_INFO, "%s", bad);
        check_clean(line_read());
    }
    struct sv_log_line l = example();
    l.path = "/gr\xc3\xbc\xc3\x9f"
             "e/\xe2\x82\xac/\xf0\x9f\x98\x80"; /* what is harmless stays readable */
    sv_log_request(&o, &l);
    assert_non_null(strstr(line_read(), l.path));
}

static json_t *parse(const char *line)
{
    json_error_t e;
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &e);
    if (!json_is_object(o))
        fail_msg("no JSON: %s: '%s'", e.text, line);
    return o;
}

static void test_json(void **state)
{
    struct sv_log_options o = options();
    struct sv_log_line l = example();
    (void)state;
    o.json = true;
    sv_log_request(&o, &l);
    json_t *j = parse(line_read());
    assert_int_equal(json_integer_value(json_object_get(j, "status")), 200);
    assert_string_equal(json_string_value(json_object_get(j, "path")), "/v1/chat/completions");
    assert_string_equal(json_string_value(json_object_get(j, "finish")), "stop");
    assert_int_equal(json_integer_value(json_object_get(j, "prompt_tokens")), 12);
    assert_int_equal(json_integer_value(json_object_get(j, "completion_tokens")), 34);
    assert_true(json_is_true(json_object_get(j, "stream")));
    assert_true(json_real_value(json_object_get(j, "first_token_s")) == 0.05);
    assert_null(json_object_get(j, "error"));
    json_decref(j);
    sv_log_message(&o, SENNIT_LOG_ERROR, "%s", "a \"quoted\"\nmessage");
    j = parse(line_read());
    assert_string_equal(json_string_value(json_object_get(j, "level")), "error");
    assert_string_equal(json_string_value(json_object_get(j, "message")), "a \"quoted\"\nmessage");
    json_decref(j);
    l = (struct sv_log_line){.id = "-", .queue_s = -1, .first_token_s = -1, .total_s = -1};
    sv_log_request(&o, &l);
    j = parse(line_read());
    assert_true(json_is_null(json_object_get(j, "status")) && json_is_null(json_object_get(j, "id")));
    assert_null(json_object_get(j, "total_s"));
    json_decref(j);
}

static void test_injection_json(void **state)
{
    struct sv_log_options o = options();
    (void)state;
    o.json = o.prompts = true;
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        struct sv_log_line l = example();
        l.id = l.method = l.path = l.client = l.finish = l.message = l.prompt = attacks[i];
        l.n_prompt = strlen(attacks[i]);
        sv_log_request(&o, &l);
        json_t *j = parse(line_read());
        assert_int_equal(json_object_size(j), 16);
        json_decref(j);
        sv_log_message(&o, SENNIT_LOG_INFO, "%s", attacks[i]);
        json_decref(parse(line_read()));
    }
}

/* However long its fields are, a line without a prompt fits into one piece of a pipe. */
static void test_long_fields(void **state)
{
    static const char *const fills[] = {"x", "\n", "\x1b", "\"", "\xff", "\xe2\x82\xac", "\xe2\x80\xae", "\\", "/"};
    struct sv_log_options o = options();
    char text[6001];
    (void)state;
    for (int json = 0; json < 2; json++)
        for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
            size_t n = strlen(fills[f]);
            for (size_t i = 0; i + n < sizeof text; i += n)
                memcpy(text + i, fills[f], n);
            text[6000] = '\0';
            struct sv_log_line l = example();
            l.id = l.method = l.path = l.client = l.finish = l.message = text;
            l.usage = (struct sv_usage){INT64_MAX, INT64_MAX};
            l.n_choices = UINT32_MAX;
            l.queue_s = l.first_token_s = l.total_s = 1e12;
            o.json = json;
            sv_log_request(&o, &l);
            const char *line = line_read();
            assert_true(strlen(line) > 800 && strlen(line) < 4096);
            if (json) {
                json_t *j = parse(line);
                assert_int_equal(json_object_size(j), 15);
                json_decref(j);
            } else {
                check_clean(line);
            }
            sv_log_message(&o, SENNIT_LOG_INFO, "%s", text);
            assert_true(strlen(line_read()) < 4096);
        }
}

/* Two processes, one pipe: every line is whole. */
static void test_no_mixing(void **state)
{
    enum { N_LINES = 300 };
    int tube[2], n_lines = 0;
    char path[800];
    (void)state;
    assert_int_equal(pipe(tube), 0);
    for (int writer = 0; writer < 2; writer++) {
        if (fork() == 0) {
            struct sv_log_options o = {.fd = tube[1]};
            struct sv_log_line l = example();
            close(tube[0]); /* else it would wait for itself when the test fails */
            memset(path, 'a' + writer, sizeof path - 1);
            path[sizeof path - 1] = '\0';
            l.path = path;
            for (int i = 0; i < N_LINES; i++)
                sv_log_request(&o, &l);
            _exit(0);
        }
    }
    close(tube[1]);
    FILE *in = fdopen(tube[0], "r");
    char line[8192], *at;
    while (fgets(line, sizeof line, in)) {
        assert_non_null(at = strstr(line, "POST "));
        assert_int_equal(strspn(at + 5, (char[]){at[5], '\0'}), sizeof path - 1);
        assert_int_equal(count_fields(line), 14);
        n_lines++;
    }
    fclose(in);
    assert_int_equal(n_lines, 2 * N_LINES);
    while (wait(NULL) > 0)
        ;
}

/* A reader that is gone or full costs the line, never the server. */
static void test_reader_gone(void **state)
{
    int tube[2];
    struct sv_log_options o = {0};
    struct sv_log_line l = example();
    (void)state;
    assert_int_equal(pipe2(tube, O_NONBLOCK), 0);
    o.fd = tube[1];
    while (write(tube[1], "x", 1) == 1)
        ;
    sv_log_request(&o, &l);
    close(tube[0]);
    close(tube[1]);
    sv_log_request(&o, &l); /* not open */
}

/* The same through a pipe that makes its writers wait; the reader learns later what it missed. */
static void test_reader_stands_still(void **state)
{
    int tube[2];
    static char text[1 << 18];
    struct sv_log_line l = example();
    (void)state;
    assert_int_equal(pipe2(tube, 0), 0);
    struct sv_log_options o = {.fd = tube[1], .prompts = true};
    l.prompt = text;
    l.n_prompt = 10000;
    memset(text, 'p', l.n_prompt);
    for (int i = 0; i < 1000; i++) /* more than the pipe holds */
        sv_log_request(&o, &l);
    assert_true(read(tube[0], text, sizeof text) > 0);
    sv_log_message(&o, SENNIT_LOG_INFO, "still there");
    l.prompt = NULL;
    sv_log_request(&o, &l);
    ssize_t n = read(tube[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, "still there"));
    assert_non_null(strstr(text, "log lines were lost"));
    close(tube[0]);
    close(tube[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_injection_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_injection_json),
        cmocka_unit_test(test_long_fields),
        cmocka_unit_test(test_no_mixing),
        cmocka_unit_test(test_reader_gone),
        cmocka_unit_test(test_reader_stands_still),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
