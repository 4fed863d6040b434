#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include <pcre2.h>
#include <stdio.h>

/* ---- the table ---- */

/* White space as the reference's regular expressions have it (the Unicode property White_Space).
 * PCRE2's own \s under PCRE2_UCP also takes U+180E, which lost the property in Unicode 6.3. */
#define WS                                                                                         \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACES "[" WS "]+(?![^" WS "])|[" WS "]+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACES
/* Llama 3 and its kin; they differ in how many digits stand together. */
#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES
/* Splits words at a change from lower to upper case. */
#define CASED(suffix, digits)                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"     \
    "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{"   \
    "Lo}\\p{M}]*" suffix "|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS                     \
    "]*[\\r\\n]+|" SPACES
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
/* The letters of European scripts that have case, as deepseek-llm lists them. */
/* clang-format off */
#define CASED_LETTERS \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}" \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}" \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}" \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}" \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}" \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}" \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}" \
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}" \
    "\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}" \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}" \
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}" \
    "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}" \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}" \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}" \
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}" \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}" \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}" \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
/* clang-format on */

/* Punctuation as the reference's Punctuation pre-tokenizer knows it: ASCII symbols count, and its
 * table is that of Unicode 8, so what became punctuation later does not count and two characters
 * that have ceased to be punctuation still do. */
#define LATER_PUNCTUATION                                                                          \
    "\\x{61D}\\x{9FD}\\x{A76}\\x{C77}\\x{C84}\\x{1B7D}-\\x{1B7E}\\x{2E43}-\\x{2E4F}"               \
    "\\x{2E52}-\\x{2E5D}\\x{10EAD}\\x{10F55}-\\x{10F59}\\x{10F86}-\\x{10F89}"                      \
    "\\x{1144B}-\\x{1144F}\\x{1145A}-\\x{1145B}\\x{1145D}\\x{11660}-\\x{1166C}\\x{116B9}"          \
    "\\x{1183B}\\x{11944}-\\x{11946}\\x{119E2}\\x{11A3F}-\\x{11A46}\\x{11A9A}-\\x{11A9C}"          \
    "\\x{11A9E}-\\x{11AA2}\\x{11C41}-\\x{11C45}\\x{11C70}-\\x{11C71}\\x{11EF7}-\\x{11EF8}"         \
    "\\x{11FFF}\\x{12FF1}-\\x{12FF2}\\x{16E97}-\\x{16E9A}\\x{16FE2}\\x{1E95E}-\\x{1E95F}"
#define PUNCTUATION "(?:(?![" LATER_PUNCTUATION "])[\\p{P}$+<=>^~|`]|[\\x{166D}\\x{111C9}])++"

static const struct sn_pretok_row rows[] = {
    {.tags = "gpt-2 gpt2 phi-2 mpt olmo jais exaone4 trillion gigachat mellum modern-bert a.x-4.0 "
             "granite-docling",
     .patterns = {GPT2}},
    {.tags = "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
     .patterns = {"\\p{N}", GPT2}},
    {.tags = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0",
     .patterns = {LLAMA3("\\p{N}{1,3}")},
     .ignore_merges = true,
     .add_bos = true},
    {.tags = "dbrx smaug-bpe glm4 chatglm-bpe", .patterns = {LLAMA3("\\p{N}{1,3}")}},
    {.tags = "qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan grok-2 solar-open kormo",
     .patterns = {LLAMA3("\\p{N}")}},
    {.tags = "deepseek-coder",
     .patterns = {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", CJK, "\\p{N}"}},
    {.tags = "deepseek-llm",
     /* The fourth pattern is "\\s+$", written so that a long run of spaces is not tried from each
        of its places. */
     .patterns =
         {"[\\r\\n]", "[" WS "]?[" CASED_LETTERS "]+",
          "[" WS
          "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
          "(?<![" WS "])[" WS "]++\\z", CJK, "\\p{N}+"}},
    {.tags = "deepseek-v3 hunyuan-dense",
     .patterns = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
                  "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                  "?[\\p{P}\\p{S}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES}},
    {.tags = "falcon", .patterns = {PUNCTUATION, GPT2, "[0-9][0-9][0-9]"}},
    {.tags = "tekken", .patterns = {CASED("", "\\p{N}")}, .ignore_merges = true, .add_bos = true},
    {.tags = "gpt-4o llama4 kanana2",
     .patterns = {CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}")}},
};

/* True when the space-separated list holds `tag` as a whole word. */
static bool list_has(const char *list, const char *tag)
{
    size_t n = strlen(tag);
    if (n == 0)
        return false;
    for (const char *p = list; (p = strstr(p, tag)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return !memchr(tag, ' ', n);
    return false;
}

const struct sn_pretok_row *sn_pretok_find(const char *tag)
{
    for (size_t i = 0; i < SN_ARRAY_LEN(rows); i++)
        if (list_has(rows[i].tags, tag))
            return &rows[i];
    return NULL;
}

void sn_pretok_names(char *out, size_t size)
{
    size_t used = 0;
    if (size > 0)
        out[0] = '\0';
    for (size_t i = 0; i < SN_ARRAY_LEN(rows) && used < size; i++) {
        int len = (int)strcspn(rows[i].tags, " ");
        int n = snprintf(out + used, size - used, "%s%.*s", i ? ", " : "", len, rows[i].tags);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* ---- PCRE2 on our heap ---- */

struct sn_pretok {
    struct sn_heap *heap;
    _Atomic bool
        out_of_memory; /* an allocation for PCRE2 failed: tells "no JIT here" from "no memory" */
    pcre2_general_context *general;
    pcre2_match_context *match;
    pcre2_code *code[SN_PRETOK_MAX_PATTERNS];
    size_t n_patterns;
    bool jit;
};

struct sn_pretok_scratch {
    pcre2_match_data *data;
};

/* PCRE2 frees without telling the size, so each block carries it; the header keeps the heap's
 * alignment. */
enum { HEADER_BYTES = 64 };

static void *pcre_alloc(size_t n, void *ctx)
{
    struct sn_pretok *p = ctx;
    size_t bytes;
    char *block =
        sn_add_overflows(n, HEADER_BYTES, &bytes) ? NULL : sn_alloc(p->heap, SN_USE_TEXT, bytes);
    if (!block) {
        atomic_store(&p->out_of_memory, true);
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    return block + HEADER_BYTES;
}

static void pcre_free(void *ptr, void *ctx)
{
    struct sn_pretok *p = ctx;
    if (!ptr)
        return;
    char *block = (char *)ptr - HEADER_BYTES;
    size_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    sn_free(p->heap, SN_USE_TEXT, block, bytes);
}

static sennit_status no_memory(struct sennit_error *err)
{
    return sn_fail(err, SENNIT_NOMEM, "no memory for the pre-tokenizer's patterns");
}

static sennit_status compile(struct sn_pretok *p, const char *pattern,
                             pcre2_compile_context *context, struct sennit_error *err)
{
    int code;
    PCRE2_SIZE offset;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &code, &offset, context);
    if (!re) {
        if (atomic_load(&p->out_of_memory))
            return no_memory(err);
        char text[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "PCRE2 refuses a pre-tokenizer pattern at offset %zu: %s; a newer PCRE2"
                       " may be needed",
                       (size_t)offset, text);
    }
    p->code[p->n_patterns++] = re;
    if (p->jit) /* where PCRE2 cannot, its interpreter gives the same matches */
        pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
    return atomic_load(&p->out_of_memory) ? no_memory(err) : SENNIT_OK;
}

/* PCRE2's default limits guard against hostile patterns. Ours are fixed and take linear time, and a
 * limit would refuse words of some ten million bytes. */
static sennit_status make_contexts(struct sn_pretok *p, struct sennit_error *err)
{
    p->general = pcre2_general_context_create(pcre_alloc, pcre_free, p);
    if (!p->general)
        return no_memory(err);
    p->match = pcre2_match_context_create(p->general);
    if (!p->match)
        return no_memory(err);
    pcre2_set_match_limit(p->match, UINT32_MAX);
    pcre2_set_depth_limit(p->match, UINT32_MAX);
    pcre2_set_heap_limit(p->match, UINT32_MAX);
    return SENNIT_OK;
}

static sennit_status compile_all(struct sn_pretok *p, const struct sn_pretok_row *row,
                                 struct sennit_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(p->general);
    if (!context)
        return no_memory(err);
    sennit_status status = SENNIT_OK;
    for (size_t i = 0; row->patterns[i] && status == SENNIT_OK; i++)
        status = compile(p, row->patterns[i], context, err);
    pcre2_compile_context_free(context);
    return status;
}

sennit_status sn_pretok_create(struct sn_pretok **out, struct sn_heap *heap,
                               const struct sn_pretok_row *row, bool jit, struct sennit_error *err)
{
    struct sn_pretok *p = sn_calloc(heap, SN_USE_TEXT, 1, sizeof *p);
    if (!p)
        return no_memory(err);
    p->heap = heap;
    p->jit = jit;
    sennit_status status = make_contexts(p, err);
    if (status == SENNIT_OK)
        status = compile_all(p, row, err);
    if (status != SENNIT_OK) {
        sn_pretok_free(p);
        return status;
    }
    *out = p;
    return SENNIT_OK;
}

void sn_pretok_free(struct sn_pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_patterns; i++)
        pcre2_code_free(p->code[i]);
    pcre2_match_context_free(p->match);
    pcre2_general_context_free(p->general);
    sn_free(p->heap, SN_USE_TEXT, p, sizeof *p);
}

sennit_status sn_pretok_scratch_create(struct sn_pretok_scratch **out, const struct sn_pretok *p,
                                       struct sennit_error *err)
{
    struct sn_pretok_scratch *s = sn_calloc(p->heap, SN_USE_TEXT, 1, sizeof *s);
    if (!s)
        return no_memory(err);
    s->data = pcre2_match_data_create(1, p->general);
    if (!s->data) {
        sn_pretok_scratch_free(s, p);
        return no_memory(err);
    }
    *out = s;
    return SENNIT_OK;
}

void sn_pretok_scratch_free(struct sn_pretok_scratch *s, const struct sn_pretok *p)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    sn_free(p->heap, SN_USE_TEXT, s, sizeof *s);
}

/* ---- splitting ---- */

struct split {
    const struct sn_pretok *p;
    struct sn_pretok_scratch *s;
    sn_pretok_word_fn emit;
    void *ctx;
    struct sennit_error *err;
};

/* The next match in text[from..n): *start and *end, both n when there is none. */
static sennit_status next_match(const struct split *sp, size_t level, const char *text, size_t n,
                                size_t from, size_t *start, size_t *end)
{
    const pcre2_code *re = sp->p->code[level];
    int rc =
        pcre2_match(re, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, sp->s->data, sp->p->match);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(re, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         sp->s->data, sp->p->match);
    *start = *end = n;
    if (rc == PCRE2_ERROR_NOMATCH)
        return SENNIT_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return sn_fail(sp->err, SENNIT_NOMEM,
                       "no memory to match a pre-tokenizer pattern in %zu bytes", n);
    if (rc < 0) {
        char text_of[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)text_of, sizeof text_of);
        return sn_fail(sp->err, SENNIT_INTERNAL,
                       "the pre-tokenizer's pattern %zu failed at byte %zu of %zu: %s (PCRE2"
                       " %d)",
                       level + 1, from, n, text_of, rc);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(sp->s->data);
    if (at[1] <= at[0])
        return sn_fail(sp->err, SENNIT_INTERNAL,
                       "the pre-tokenizer's pattern %zu matched nothing at byte %zu", level + 1,
                       (size_t)at[0]);
    *start = at[0];
    *end = at[1];
    return SENNIT_OK;
}

/* Each piece is a subject of its own: what stands outside it is invisible to the later patterns, so
 * that "end of text" holds at its end, as in the reference. Recursion is at most
 * SN_PRETOK_MAX_PATTERNS deep. */
static sennit_status split_level(const struct split *sp, size_t level, const char *text, size_t n)
{
    if (n == 0)
        return SENNIT_OK;
    if (level == sp->p->n_patterns)
        return sp->emit(sp->ctx, text, n, sp->err);
    for (size_t from = 0; from < n;) {
        size_t start, end;
        SN_TRY(next_match(sp, level, text, n, from, &start, &end));
        SN_TRY(split_level(sp, level + 1, text + from, start - from));
        SN_TRY(split_level(sp, level + 1, text + start, end - start));
        from = end;
    }
    return SENNIT_OK;
}

sennit_status sn_pretok_split(const struct sn_pretok *p, struct sn_pretok_scratch *s,
                              const char *text, size_t n, sn_pretok_word_fn emit, void *ctx,
                              struct sennit_error *err)
{
    struct split sp = {.p = p, .s = s, .emit = emit, .ctx = ctx, .err = err};
    return split_level(&sp, 0, text, n);
}
