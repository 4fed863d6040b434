/* Every row of the pre-tokenizer table: its patterns compile, its words joined are the text, and
 * PCRE2's JIT and its interpreter cut alike, on the hard strings and on long runs of one kind. */
#include "text/tok_support.h"

#include "text/pretok.h"

struct words {
    const char *text;
    size_t at; /* end of the last word */
    uint64_t hash;
    size_t n;
};

static sennit_status take_word(void *ctx, const char *word, size_t n, struct sennit_error *err)
{
    struct words *w = ctx;
    (void)err;
    CHECK(word == w->text + w->at && n > 0, "word %zu is not where the last one ended", w->n);
    w->at += n;
    w->hash = (w->hash ^ w->at) * 0x100000001B3u;
    w->n++;
    return SENNIT_OK;
}

static struct words cut(const struct sn_pretok *p, const char *text, size_t n)
{
    struct sn_pretok_scratch *s;
    struct sennit_error err;
    struct words w = {.text = text};
    CHECK(sn_pretok_scratch_create(&s, p, &err) == SENNIT_OK, "%s", err.message);
    CHECK(sn_pretok_split(p, s, text, n, take_word, &w, &err) == SENNIT_OK, "%s", err.message);
    CHECK(w.at == n, "%zu of %zu bytes came back", w.at, n);
    sn_pretok_scratch_free(s, p);
    return w;
}

static void both_ways(const struct sn_pretok *const p[2], const char *name, const char *text,
                      size_t n)
{
    struct words with = cut(p[1], text, n), without = cut(p[0], text, n);
    CHECK(with.hash == without.hash && with.n == without.n,
          "%s: the interpreter cuts '%.60s' otherwise", name, text);
}

static void run_row(struct sn_heap *heap, const char *name, json_t *strings, size_t long_bytes)
{
    static const char *const pieces[] = {"a",  "A",         " ", "\n", "\r\n", "7",  "!",  "é",
                                         "漢", "e\xCC\x81", "🚀", "\t", "aB",   " a", "'s", "。"};
    const struct sn_pretok_row *row = sn_pretok_find(name);
    struct sennit_error err;
    struct sn_pretok *p[2];
    CHECK(row, "no row '%s'", name);
    for (int jit = 0; jit < 2; jit++)
        CHECK(sn_pretok_create(&p[jit], heap, row, jit, &err) == SENNIT_OK, "%s: %s", name,
              err.message);
    const struct sn_pretok *const both[2] = {p[0], p[1]};
    for (size_t i = 0; i < json_array_size(strings); i++) {
        json_t *s = json_array_get(json_array_get(strings, i), 0);
        both_ways(both, name, json_string_value(s), json_string_length(s));
    }
    char *text = malloc(long_bytes + 8);
    for (size_t i = 0; i < SN_ARRAY_LEN(pieces); i++) {
        size_t n = 0, len = strlen(pieces[i]);
        for (; n < long_bytes; n += len)
            memcpy(text + n, pieces[i], len);
        both_ways(both, name, text, n);
        text[n++] = 'x'; /* an end that makes the patterns go back */
        both_ways(both, name, text, n);
    }
    free(text);
    sn_pretok_free(p[0]);
    sn_pretok_free(p[1]);
}

int main(int argc, char **argv)
{
    struct sn_heap heap;
    char names[256];
    sn_heap_init(&heap, NULL);
    size_t long_bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000;
    json_t *golden = golden_load("strings.json");
    sn_pretok_names(names, sizeof names);
    size_t n = 0;
    for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", "), n++)
        run_row(&heap, name, json_object_get(golden, "strings"), long_bytes);
    CHECK(n >= 11, "%zu rows", n);
    json_decref(golden);
    CHECK(!sn_pretok_find("") && !sn_pretok_find("llama") && !sn_pretok_find(" "),
          "found what is not there");
    sn_pretok_names(names, 10); /* cut, not overrun */
    CHECK(strlen(names) < 10, "names");
    CHECK(atomic_load(&heap.total) == 0, "leak of %zu bytes", atomic_load(&heap.total));
    return 0;
}
