#include "serve/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static bool SENNIT_PRINTF(2, 3) fail(struct sennit_error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    err->code = SENNIT_IO;
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    return false;
}

static bool resolve(const char *host, uint32_t port, struct addrinfo **out, struct sennit_error *err)
{
    char bare[256], service[8];
    size_t n = strlen(host);
    bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';
    snprintf(bare, sizeof bare, "%.*s", (int)(brackets ? n - 2 : n), brackets ? host + 1 : host);
    snprintf(service, sizeof service, "%u", port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int code = getaddrinfo(bare, service, &hints, out);
    return code == 0 ? true : fail(err, "--host %s: %s", host, gai_strerror(code));
}

static bool is_loopback(const struct sockaddr *at)
{
    if (at->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static void describe(struct sv_place *p)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    char text[INET6_ADDRSTRLEN] = "?";
    getsockname(p->fd, (struct sockaddr *)&at, &len);
    p->loopback = is_loopback((struct sockaddr *)&at);
    if (at.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&at;
        p->port = ntohs(in->sin_port);
        snprintf(p->host, sizeof p->host, "%s", inet_ntop(AF_INET, &in->sin_addr, text, sizeof text));
    } else {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&at;
        p->port = ntohs(in->sin6_port);
        snprintf(p->host, sizeof p->host, "[%s]", inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text));
    }
}

bool sv_bind(const char *host, uint32_t port, struct sv_place *out, struct sennit_error *err)
{
    struct addrinfo *at;
    int on = 1;
    *out = (struct sv_place){.fd = -1};
    if (!resolve(host, port, &at, err))
        return false;
    out->fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = out->fd >= 0 && setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              bind(out->fd, at->ai_addr, at->ai_addrlen) == 0;
    int why = errno;
    freeaddrinfo(at);
    if (ok) {
        describe(out);
        return true;
    }
    if (out->fd >= 0)
        close(out->fd);
    out->fd = -1;
    return fail(err, "cannot listen on %s port %u: %s%s", host, port, strerror(why),
                why == EADDRINUSE ? "; another program has that port (--port 0 takes a free one)" : "");
}

bool sv_listen(const struct sv_place *place, struct sennit_error *err)
{
    return listen(place->fd, SOMAXCONN) == 0
               ? true
               : fail(err, "cannot listen on %s port %u: %s", place->host, place->port, strerror(errno));
}

bool sv_want_files(uint64_t n, struct sennit_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= n)
        return true;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < n)
        return fail(err,
                    "--max-connections needs %llu open files; this process may have %llu. Lower it, or raise the "
                    "limit (ulimit -Hn)",
                    (unsigned long long)n, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = n;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0
               ? true
               : fail(err, "cannot raise the limit of open files: %s", strerror(errno));
}
