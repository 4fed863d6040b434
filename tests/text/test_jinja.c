/* Chat templates against what the reference implementation rendered
 * (tests/text/golden/templates.json, made by tools/template_golden.py): own templates by their
 * text, those of the shared folder by hash. usage: test-text-jinja-golden golden | refused | shared
 * conversations FILE: a file of tools/template_conversations.py, texts and raised messages in full.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "test_jinja_common.h"

static bool same(const char *name, const char *source, struct rendered *r, const char *want,
                 size_t n_want)
{
    if (r->status == SENNIT_OK && r->text.len == n_want &&
        memcmp(r->text.data ? r->text.data : "", want, n_want) == 0)
        return true;
    printf("FAILED %s: %s\n  want: %.*s\n  got:  %.*s (%s)\n", name, source, (int)n_want, want,
           (int)r->text.len, r->text.data ? r->text.data : "", r->status ? r->err.message : "ok");
    return false;
}

/* The spans cover the text without gap or overlap, and neighbours differ. */
static bool spans_hold(const char *name, const struct rendered *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->spans.n; i++) {
        const struct sn_span *s = &r->spans.items[i];
        if (s->start != at || s->end <= s->start || (i && s->trusted == s[-1].trusted)) {
            printf("FAILED %s: span %zu is wrong\n", name, i);
            return false;
        }
        at = s->end;
    }
    if (at != r->text.len)
        printf("FAILED %s: the spans end at %zu of %zu\n", name, at, r->text.len);
    return at == r->text.len;
}

static int test_golden(const json_t *golden)
{
    struct sn_render_opts opts = {.now_unix =
                                      json_integer_value(json_object_get(golden, "now_unix"))};
    size_t i, failed = 0;
    json_t *c, *cases = json_object_get(golden, "cases");
    json_array_foreach(cases, i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        const char *source = json_string_value(json_object_get(c, "template"));
        const json_t *want = json_object_get(c, "expected");
        struct rendered r;
        render(&r, source, strlen(source), json_object_get(c, "vars"), &opts);
        bool ok;
        if (want) {
            ok = same(name, source, &r, json_string_value(want), json_string_length(want)) &&
                 spans_hold(name, &r);
        } else {
            ok = r.status != SENNIT_OK && r.status != SENNIT_INTERNAL && names_a_place(&r.err);
            if (!ok)
                printf("FAILED %s: %s\n  want an error (%s), got: %s%s\n", name, source,
                       json_string_value(json_object_get(c, "error")),
                       r.status ? r.err.message : "", r.text.data ? r.text.data : "");
        }
        failed += !ok;
        failed += !rendered_free(&r);
    }
    printf("%zu cases, %zu failed\n", json_array_size(cases), failed);
    return failed || json_array_size(cases) < 250;
}

static int test_refused(const json_t *golden)
{
    size_t i, failed = 0;
    json_t *t, *list = json_object_get(golden, "unsupported");
    json_array_foreach(list, i, t)
    {
        struct rendered r;
        render(&r, json_string_value(t), json_string_length(t), NULL, NULL);
        bool format_ok = r.status == SENNIT_FORMAT && strstr(r.err.message, "ASCII");
        if ((r.status != SENNIT_UNSUPPORTED && !format_ok) || !names_a_place(&r.err)) {
            printf("FAILED: %s is not refused as unsupported: %s\n", json_string_value(t),
                   r.status ? r.err.message : r.text.data);
            failed++;
        }
        failed += !rendered_free(&r);
    }
    printf("%zu refused constructs, %zu failed\n", json_array_size(list), failed);
    return failed != 0;
}

/* ---- the shared folder
 * ----------------------------------------------------------------------------------------- */

/* Templates that this build refuses, in the order of their names. The list may only shrink. */
static const char *const unsupported[] = {NULL};

static bool is_unsupported(const char *file)
{
    for (const char *const *p = unsupported; *p; p++)
        if (strcmp(*p, file) == 0)
            return true;
    return false;
}

static bool check_hash(const char *file, const char *name, const struct rendered *r,
                       const json_t *want)
{
    const char *hash = json_string_value(json_object_get(want, "fnv1a"));
    char got[24];
    snprintf(got, sizeof got, "%016llx", (unsigned long long)fnv1a(r->text.data, r->text.len));
    if (!hash) {
        if (r->status != SENNIT_OK && r->status != SENNIT_INTERNAL && names_a_place(&r->err))
            return true;
        printf("FAILED %s %s: rendered %zu bytes, the reference fails\n", file, name, r->text.len);
        return false;
    }
    if (r->status == SENNIT_OK && strcmp(hash, got) == 0 &&
        (json_int_t)r->text.len == json_integer_value(json_object_get(want, "bytes")))
        return spans_hold(file, r);
    printf("FAILED %s %s: %s, %zu bytes\n", file, name, r->status ? r->err.message : "another text",
           r->text.len);
    return false;
}

static size_t check_file(const json_t *golden, const json_t *entry, const char *source, size_t n,
                         size_t *n_renders)
{
    struct sn_render_opts opts = {.now_unix =
                                      json_integer_value(json_object_get(golden, "now_unix"))};
    const char *file = json_string_value(json_object_get(entry, "file")), *name;
    json_t *want;
    size_t failed = 0;
    json_object_foreach(json_object_get(entry, "renders"), name, want)
    {
        json_t *vars = json_deep_copy(json_object_get(golden, "tokens"));
        json_object_update(vars, json_object_get(json_object_get(golden, "conversations"), name));
        struct rendered r;
        render(&r, source, n, vars, &opts);
        if (is_unsupported(file) ? r.status != SENNIT_UNSUPPORTED || !names_a_place(&r.err)
                                 : !check_hash(file, name, &r, want))
            failed++;
        ++*n_renders;
        failed += !rendered_free(&r);
        json_decref(vars);
    }
    return failed;
}

static int test_shared(const json_t *golden)
{
    size_t i, failed = 0, n_renders = 0, n_files = 0, bad_files = 0;
    json_t *entry, *list = json_object_get(golden, "shared");
    json_array_foreach(list, i, entry)
    {
        char path[4096];
        size_t n;
        shared_path(path, sizeof path, json_string_value(json_object_get(entry, "file")));
        char *source = read_file(path, &n);
        if (!source) {
            printf(
                "SKIPPED: %s is not there; set SENNIT_SHARED to the folder with data/templates\n",
                path);
            return 77;
        }
        size_t bad = check_file(golden, entry, source, n, &n_renders);
        failed += bad;
        bad_files += bad != 0;
        n_files++;
        free(source);
    }
    printf("%zu templates, %zu with differences; %zu renders, %zu failed\n", n_files, bad_files,
           n_renders, failed);
    return failed || n_files < 30;
}

/* ---- conversations --------------------------------------------------------------------------- */

/* What the template itself said: the message after "template line L, column C: ". */
static const char *raised(const struct rendered *r)
{
    const char *at = strstr(r->err.message, "column ");
    at = at ? strstr(at, ": ") : NULL;
    return r->status == SENNIT_INVALID && at ? at + 2 : NULL;
}

static bool as_expected(const char *template, const char *talk, const struct rendered *r,
                        const json_t *want)
{
    const json_t *text = json_object_get(want, "text"), *message = json_object_get(want, "raised");
    if (text) {
        size_t n = json_string_length(text), k = 0;
        const char *w = json_string_value(text), *got = r->text.data ? r->text.data : "";
        if (r->status == SENNIT_OK && r->text.len == n && memcmp(got, w, n) == 0)
            return spans_hold(talk, r);
        while (k < n && k < r->text.len && got[k] == w[k])
            k++;
        printf("FAILED %s, %s: at byte %zu\n  want: %.*s\n  got:  %.*s (%s)\n", template, talk, k,
               (int)sn_min_size(n - k, 80), w + k, (int)sn_min_size(r->text.len - k, 80), got + k,
               r->status ? r->err.message : "ok");
        return false;
    }
    const char *said = raised(r);
    bool ok = message ? said && strcmp(said, json_string_value(message)) == 0
                      : r->status != SENNIT_OK && r->status != SENNIT_INTERNAL &&
                            names_a_place(&r->err);
    if (!ok)
        printf("FAILED %s, %s: want %s\n  got: %s%.*s\n", template, talk,
               json_string_value(message ? message : json_object_get(want, "message")),
               r->status ? r->err.message : "a text: ", (int)sn_min_size(r->text.len, 200),
               r->text.data ? r->text.data : "");
    return ok;
}

static int test_conversations(const json_t *file)
{
    struct sn_render_opts opts = {.now_unix =
                                      json_integer_value(json_object_get(file, "now_unix"))};
    const json_t *talks = json_object_get(file, "conversations");
    json_t *t, *want;
    size_t i, n = 0, n_texts = 0, n_raised = 0, failed = 0;
    json_array_foreach(json_object_get(file, "templates"), i, t)
    {
        const json_t *source = json_object_get(t, "source");
        const char *talk, *name = json_string_value(json_object_get(t, "name"));
        json_object_foreach(json_object_get(t, "renders"), talk, want)
        {
            json_t *vars = json_deep_copy(json_object_get(file, "tokens"));
            json_object_update(vars, json_object_get(talks, talk));
            struct rendered r;
            render(&r, json_string_value(source), json_string_length(source), vars, &opts);
            failed += !as_expected(name, talk, &r, want);
            failed += !rendered_free(&r);
            json_decref(vars);
            n++;
            n_texts += json_object_get(want, "text") != NULL;
            n_raised += json_object_get(want, "raised") != NULL;
        }
    }
    printf("%zu templates, %zu conversations, %zu renders (%zu texts, %zu raised, %zu other errors), "
           "%zu failed\n",
           i, json_object_size(talks), n, n_texts, n_raised, n - n_texts - n_raised, failed);
    return failed || i < 3 || n < 12 * i;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "golden";
    json_error_t err;
    const char *path =
        argc > 2 ? argv[2] : SENNIT_SOURCE_DIR "/tests/text/golden/templates.json";
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, &err);
    if (!golden) {
        printf("%s: %s\n", path, err.text);
        return 1;
    }
    int rc = strcmp(what, "shared") == 0          ? test_shared(golden)
             : strcmp(what, "refused") == 0       ? test_refused(golden)
             : strcmp(what, "conversations") == 0 ? test_conversations(golden)
                                                  : test_golden(golden);
    json_decref(golden);
    return rc;
}
