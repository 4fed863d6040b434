/* What the template tests share: render a source in one go and check that nothing leaks. */
#ifndef TEST_JINJA_COMMON_H
#define TEST_JINJA_COMMON_H

#include <stdio.h>
#include <stdlib.h>

#include "text/template/template.h"

struct rendered {
    struct sn_heap heap;
    struct sn_buf text;
    struct sn_span_list spans;
    sennit_status status;
    struct sennit_error err;
};

static inline void render(struct rendered *r, const char *source, size_t n, const json_t *vars,
                          const struct sn_render_opts *opts)
{
    struct sn_template *t;
    memset(&r->err, 0, sizeof r->err);
    sn_heap_init(&r->heap, NULL);
    sn_buf_init(&r->text, &r->heap, SN_USE_TEXT, SIZE_MAX);
    sn_span_list_init(&r->spans, &r->heap);
    r->status = sn_template_parse(&t, &r->heap, source, n, &r->err);
    if (r->status == SENNIT_OK)
        r->status = sn_template_render(t, vars, opts, &r->text, &r->spans, &r->err);
    sn_template_free(t);
}

/* False when memory was lost, or when the error does not match the status. */
static inline bool rendered_free(struct rendered *r)
{
    sn_buf_free(&r->text);
    sn_span_list_free(&r->spans);
    size_t left = r->heap.total;
    if (left)
        printf("FAILED: %zu bytes leaked\n", left);
    if (r->status != r->err.code)
        printf("FAILED: status %d but error %d\n", r->status, r->err.code);
    return left == 0 && r->status == r->err.code;
}

static inline bool names_a_place(const struct sennit_error *err)
{
    const char *line = strstr(err->message, "line "), *column = strstr(err->message, "column ");
    return line && column && atoi(line + 5) > 0 && atoi(column + 7) > 0;
}

static inline uint64_t fnv1a(const char *p, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001B3u;
    return h;
}

static inline void shared_path(char *out, size_t size, const char *file)
{
    const char *dir = getenv("SENNIT_SHARED");
    snprintf(out, size, "%s/data/templates/%s", dir ? dir : SENNIT_SHARED_DIR, file);
}

static inline char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = f ? malloc(1 << 20) : NULL;
    *n = data ? fread(data, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    return data;
}

#endif
