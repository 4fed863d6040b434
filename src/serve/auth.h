/* Who may use the server: API keys, read from a file and compared in constant time; and, where none are asked for,
 * whether a browser was sent here by somebody else's page. */
#ifndef SERVE_AUTH_H
#define SERVE_AUTH_H

#include "serve/error.h"

enum { SV_MOST_KEYS = 1024 };

struct sv_keys; /* opaque */
/* One key per line; empty lines and lines that begin with '#' are skipped, blanks around a key are dropped. NULL with
 * a message in *err when the file cannot be read, others than its owner may read or write it (the message says chmod
 * 600), it holds no key or more than SV_MOST_KEYS, or a key is shorter than 16 or longer than 512 bytes or has other
 * bytes than printable ASCII without blanks. No message quotes a key. */
struct sv_keys *sv_keys_load(const char *path, struct sennit_error *err);
void sv_keys_free(struct sv_keys *keys); /* wipes; NULL is fine */
/* header: the Authorization header's value or NULL. "Bearer KEY", scheme in any case. The time depends on the
 * header's length and the number of keys alone. */
bool sv_keys_match(const struct sv_keys *keys, const char *header);

/* host: the Host header's value or NULL. Does it name this machine (localhost, *.localhost, 127.x.x.x, [::1], with
 * any port)? A page whose own name was made to point here (DNS rebinding) shows by its name. NULL does: browsers
 * always send it. */
bool sv_host_is_local(const char *host);
/* origin: the Origin header's value or NULL (no browser, or nothing that could change or cost anything). Is it the
 * page that `allowed` (--cors-origin; NULL = none, "*" = any) names, or one of the server's own `host`? */
bool sv_origin_may(const char *origin, const char *host, const char *allowed);

#endif
