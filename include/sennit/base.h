/* Sennit base types: status codes, errors, the allocator and the log callback.
 *
 * Conventions of every Sennit header:
 *  - A function that can fail returns a sennit_status and takes a `struct sennit_error *err` last. `err` may be
 *    NULL. On success it is left untouched; on failure its code equals the returned status and its message is
 *    complete enough to print: it names what was wrong and what to do.
 *  - After a failure the objects passed in are unchanged, unless the function's comment says otherwise.
 *  - Sizes in bytes end in _bytes, counts begin with n_, token positions are pos.
 *  - The library never prints, never exits and never reads the environment.
 */
#ifndef SENNIT_BASE_H
#define SENNIT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SENNIT_API __attribute__((visibility("default")))
#define SENNIT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define SENNIT_API
#define SENNIT_PRINTF(f, a)
#endif

#define SENNIT_VERSION "0.1.0"

/* Number of the numeric specification (docs/numerics.md). Two builds with the same number give the same bits for
 * the same model file, prompt and sampling parameters; a change of any order of operations raises it. */
#define SENNIT_NUMERICS 1

/* What went wrong, by what the caller can do about it. */
typedef enum sennit_status {
    SENNIT_OK = 0,
    SENNIT_INVALID = 1,     /* an argument is wrong: correct the call */
    SENNIT_RANGE = 2,       /* a length or position is outside what the object allows */
    SENNIT_STATE = 3,       /* legal call, not in the object's present state */
    SENNIT_NOMEM = 4,       /* the allocator refused */
    SENNIT_IO = 5,          /* the operating system refused a file operation */
    SENNIT_FORMAT = 6,      /* a file or text is malformed; the message names the field */
    SENNIT_UNSUPPORTED = 7, /* well-formed, but this build cannot do it; the message names the feature */
    SENNIT_NOT_FOUND = 8,
    SENNIT_TOO_BIG = 9,     /* can never fit the configured budget; the message has both numbers */
    SENNIT_NUMERIC = 10,    /* a NaN or an infinity reached the logits of a row */
    SENNIT_INTERNAL = 11,   /* a broken invariant: a bug in Sennit */
    SENNIT_BUSY = 12        /* a queue is full: try again later */
} sennit_status;

/* Stable lower-case name of a status ("ok", "invalid" ...), "unknown" for other values. Any thread. */
SENNIT_API const char *sennit_status_name(sennit_status status);

struct sennit_error {
    sennit_status code;
    char message[512]; /* UTF-8, NUL-terminated, cut at a character boundary */
};

/* One function for all memory, told the old size, so that accounting needs no headers.
 *   ptr NULL, old 0          : allocate `new_bytes`
 *   new_bytes 0              : free; returns NULL and cannot fail
 *   otherwise                : resize
 * Returned memory must be aligned to 64 bytes. NULL for a non-zero `new_bytes` means failure and leaves `ptr`
 * valid. Called from any thread that uses the objects made with it; must be thread-safe. */
typedef void *(*sennit_alloc_fn)(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes);

struct sennit_allocator {
    sennit_alloc_fn fn; /* NULL = the C library's allocator, large blocks on huge pages where the system has them */
    void *ctx;
};

typedef enum sennit_log_level {
    SENNIT_LOG_DEBUG,
    SENNIT_LOG_INFO,
    SENNIT_LOG_WARN,
    SENNIT_LOG_ERROR
} sennit_log_level;

/* Receives one message without a newline. May be called from any thread; must not call back into the library. */
typedef void (*sennit_log_fn)(void *ctx, sennit_log_level level, const char *message);

struct sennit_logger {
    sennit_log_fn fn; /* NULL = silent */
    void *ctx;
};

/* The version string of the library that is linked, "major.minor.patch". Any thread. */
SENNIT_API const char *sennit_version(void);

#ifdef __cplusplus
}
#endif
#endif
