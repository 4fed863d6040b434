/* The listening socket, and how many sockets the process may have. */
#ifndef SERVE_NET_H
#define SERVE_NET_H

#include <stdint.h>

#include "sennit/sennit.h"

struct sv_place {
    int fd;
    bool loopback; /* only programs on this machine can reach it */
    uint16_t port;
    char host[64]; /* as in a URL: "127.0.0.1", "[::1]" */
};

/* Binds, does not listen yet: clients are refused until sv_listen. host: a name or a literal, IPv6 with or without
 * brackets. False with *err. */
bool sv_bind(const char *host, uint32_t port, struct sv_place *out, struct sennit_error *err);
bool sv_listen(const struct sv_place *place, struct sennit_error *err);
/* Raises the soft limit of open files so that n sockets fit. */
bool sv_want_files(uint64_t n, struct sennit_error *err);

#endif
