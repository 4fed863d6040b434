/* API keys. Every key lies zero-padded in a slot of one length, so that a comparison always walks the same bytes. */
#include "serve/auth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST_KEY = 16, MOST_KEY = 512, N_WORDS = MOST_KEY / 8, MOST_FILE_BYTES = 1024 * 1024 };

struct slot {
    uint64_t words[N_WORDS];
    uint64_t n_bytes;
};

struct sv_keys {
    uint32_t n_keys;
    struct slot keys[SV_MOST_KEYS];
};

SENNIT_PRINTF(3, 4)
static bool fail(struct sennit_error *err, sennit_status code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->code = code;
        vsnprintf(err->message, sizeof err->message, fmt, args);
        va_end(args);
    }
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

/* Pipes are fine too: a shell's <(...) is one. */
static bool check_file(int fd, const char *path, struct sennit_error *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return fail(err, SENNIT_IO, "cannot read the key file '%s': %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return fail(err, SENNIT_IO, "the key file '%s' is a directory", path);
    if (st.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH))
        return fail(err, SENNIT_INVALID,
                    "the key file '%s' may be read or written by others than its owner (mode %03o): chmod 600 '%s'",
                    path, (unsigned)(st.st_mode & 0777), path);
    return true;
}

/* Not through stdio, whose buffer would keep a copy. text: [MOST_FILE_BYTES + 1]. */
static bool read_file(const char *path, char *text, size_t *n_text, struct sennit_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail(err, errno == ENOENT ? SENNIT_NOT_FOUND : SENNIT_IO, "cannot open the key file '%s': %s", path,
                    strerror(errno));
    bool ok = check_file(fd, path, err);
    for (*n_text = 0; ok;) {
        ssize_t got = read(fd, text + *n_text, MOST_FILE_BYTES + 1 - *n_text);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            ok = fail(err, SENNIT_IO, "cannot read the key file '%s': %s", path, strerror(errno));
        if (got <= 0)
            break;
        *n_text += (size_t)got;
        if (*n_text > MOST_FILE_BYTES)
            ok = fail(err, SENNIT_INVALID, "the key file '%s' is longer than %d bytes: is it the right file?", path,
                      MOST_FILE_BYTES);
    }
    close(fd);
    return ok;
}

/* One line without its end. No message says what is in it. */
static bool take_line(struct sv_keys *keys, const char *path, unsigned line, const char *text, size_t n,
                      struct sennit_error *err)
{
    while (n && is_blank(*text))
        text++, n--;
    while (n && (is_blank(text[n - 1]) || text[n - 1] == '\r'))
        n--;
    if (!n || *text == '#')
        return true;
    if (n < LEAST_KEY || n > MOST_KEY)
        return fail(err, SENNIT_INVALID, "%s:%u: a key of %zu bytes; keys have %d to %d", path, line, n, LEAST_KEY,
                    MOST_KEY);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return fail(err, SENNIT_INVALID,
                        "%s:%u: byte %zu of the key is none that a header can carry: use printable ASCII without "
                        "blanks",
                        path, line, i + 1);
    if (keys->n_keys == SV_MOST_KEYS)
        return fail(err, SENNIT_INVALID, "%s:%u: more than %d keys", path, line, SV_MOST_KEYS);
    struct slot *slot = &keys->keys[keys->n_keys++];
    memcpy(slot->words, text, n);
    slot->n_bytes = n;
    return true;
}

static bool take_lines(struct sv_keys *keys, const char *path, const char *text, size_t n_text,
                       struct sennit_error *err)
{
    const char *end = text + n_text;
    if (n_text >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        text += 3; /* some editors begin a file with a byte order mark */
    for (unsigned line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop)
            stop = end;
        if (!take_line(keys, path, line, text, (size_t)(stop - text), err))
            return false;
        text = stop + (stop < end);
    }
    if (!keys->n_keys)
        return fail(err, SENNIT_INVALID, "the key file '%s' holds no key: write one per line, of %d bytes or more",
                    path, LEAST_KEY);
    return true;
}

struct sv_keys *sv_keys_load(const char *path, struct sennit_error *err)
{
    struct sv_keys *keys = calloc(1, sizeof *keys);
    char *text = malloc(MOST_FILE_BYTES + 1);
    size_t n_text = 0;
    bool ok = keys && text;
    if (!ok)
        fail(err, SENNIT_NOMEM, "no memory for the keys");
    ok = ok && read_file(path, text, &n_text, err) && take_lines(keys, path, text, n_text, err);
    if (text)
        explicit_bzero(text, n_text);
    free(text);
    if (ok)
        return keys;
    sv_keys_free(keys);
    return NULL;
}

void sv_keys_free(struct sv_keys *keys)
{
    if (!keys)
        return;
    explicit_bzero(keys, sizeof *keys);
    free(keys);
}

/* ---- a request ------------------------------------------------------------------------------------------------- */

/* "Bearer KEY": the key, without blanks around it; NULL when the header is something else. */
static const char *bearer(const char *header, size_t *n_key)
{
    static const char scheme[] = "bearer";
    size_t n_scheme = sizeof scheme - 1;
    while (is_blank(*header))
        header++;
    if (strncasecmp(header, scheme, n_scheme) != 0 || !is_blank(header[n_scheme]))
        return NULL;
    header += n_scheme;
    while (is_blank(*header))
        header++;
    *n_key = strlen(header);
    while (*n_key && is_blank(header[*n_key - 1]))
        (*n_key)--;
    return header;
}

/* 1 when both are the same, else 0, without a branch that depends on either. */
static uint64_t same(const struct slot *a, const struct slot *b)
{
    volatile uint64_t differ = a->n_bytes ^ b->n_bytes;
    for (size_t i = 0; i < N_WORDS; i++)
        differ |= a->words[i] ^ b->words[i];
    uint64_t d = differ;
    return 1 ^ ((d | (0 - d)) >> 63);
}

bool sv_keys_match(const struct sv_keys *keys, const char *header)
{
    size_t n_key = 0;
    const char *key = header ? bearer(header, &n_key) : NULL;
    if (!key || n_key > MOST_KEY)
        return false;
    struct slot given = {.n_bytes = n_key};
    memcpy(given.words, key, n_key);
    volatile uint64_t found = 0;
    for (uint32_t i = 0; i < keys->n_keys; i++)
        found |= same(&keys->keys[i], &given);
    explicit_bzero(&given, sizeof given);
    return found != 0;
}

/* ---- pages in browsers ----------------------------------------------------------------------------------------- */

static bool ends_name(const char *at)
{
    return *at == '\0' || *at == ':';
}

static bool is_loopback_v4(const char *text, size_t n)
{
    char copy[16];
    struct in_addr at;
    if (n >= sizeof copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return inet_pton(AF_INET, copy, &at) == 1 && ntohl(at.s_addr) >> 24 == 127;
}

bool sv_host_is_local(const char *host)
{
    static const char local[] = "localhost", v6[] = "[::1]";
    if (!host)
        return true;
    if (strncmp(host, v6, sizeof v6 - 1) == 0)
        return ends_name(host + sizeof v6 - 1);
    size_t n = strcspn(host, ":"), n_local = sizeof local - 1;
    if (is_loopback_v4(host, n))
        return true;
    return n >= n_local && strncasecmp(host + n - n_local, local, n_local) == 0 &&
           (n == n_local || host[n - n_local - 1] == '.');
}

bool sv_origin_may(const char *origin, const char *host, const char *allowed)
{
    if (!origin || (allowed && (strcmp(allowed, "*") == 0 || strcmp(allowed, origin) == 0)))
        return true;
    const char *name = strstr(origin, "://");
    return name && host && strcasecmp(name + 3, host) == 0;
}
