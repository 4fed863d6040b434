/* Memory of the server's request path: malloc, with a hook for tests that make it fail. */
#ifndef SERVE_ALLOC_H
#define SERVE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* As malloc, calloc (n * size, zeroed), realloc and free; n_bytes > 0. NULL without memory. */
void *sv_alloc(size_t n_bytes);
void *sv_calloc(size_t n, size_t size);
void *sv_realloc(void *ptr, size_t n_bytes);
void sv_free(void *ptr);
/* A copy with a NUL behind it. */
char *sv_copy(const char *data, size_t n_bytes);

/* Asked before every allocation; false makes it fail. NULL, the default, asks nobody. For tests: set it while no
 * other thread allocates. */
extern bool (*sv_alloc_hook)(size_t n_bytes);

#endif
