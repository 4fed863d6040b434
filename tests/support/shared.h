/* Where the material shared by the tests lies: $SENNIT_SHARED, else the folder beside the source
 * tree. */
#ifndef TEST_SHARED_H
#define TEST_SHARED_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEST_SKIPPED = 77 };

/* Writes the path of a file there; false when it cannot be read. */
static inline bool shared_path(char *out, size_t n, const char *relative)
{
    const char *root = getenv("SENNIT_SHARED");
    int len = snprintf(out, n, "%s/%s", root && *root ? root : SENNIT_SHARED_DIR, relative);
    return len > 0 && (size_t)len < n && access(out, R_OK) == 0;
}

#endif
