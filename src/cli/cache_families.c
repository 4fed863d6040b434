/* sennit cache-families: what each family of caches takes, can do and costs. All of it comes from the library's
 * table; a family that is added there shows up here by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct families_opts {
    bool json;
    const char *type, *inner, *kind;
    uint32_t n_kv_heads, d_k, d_v, k_bits, v_bits, group, page_tokens;
    uint32_t window, slack, n_kept, start, d_latent, d_rope, d_index, top_k;
    uint32_t tokens;
};
#define F(field) offsetof(struct families_opts, field)
enum { DEFAULT_TOKENS = 4096, MAX_DIM = 65536, MAX_WINDOW = 1 << 30 };

static const struct opt output_table[] = {
    {"json", 0, OPT_FLAG, F(json), NULL, "one line of JSON", 0, 0, NULL},
    {"tokens", 0, OPT_U32, F(tokens), "N", "length of the row whose bytes are printed (default 4096)", 1, MAX_WINDOW,
     NULL},
    {0},
};
static const struct opt geometry_table[] = {
    {"kv-heads", 0, OPT_U32, F(n_kv_heads), "N", "heads of keys and values, or of a recurrent state", 1, 4096, NULL},
    {"d-k", 0, OPT_U32, F(d_k), "N", "dimension of a key's head", 1, MAX_DIM, NULL},
    {"d-v", 0, OPT_U32, F(d_v), "N", "dimension of a value's head (default: as --d-k)", 1, MAX_DIM, NULL},
    {"type", 0, OPT_CHOICE, F(type), NULL, "what is stored uncoded", 0, 0, "f16|bf16|f32"},
    {"page-tokens", 0, OPT_U32, F(page_tokens), "N", "positions in a page", 1, 64, NULL},
    {"bits", 0, OPT_U32, F(k_bits), "N", "of the codes of keys", 1, 32, NULL},
    {"value-bits", 0, OPT_U32, F(v_bits), "N", "of the codes of values (default: as --bits)", 1, 32, NULL},
    {"group", 0, OPT_U32, F(group), "N", "numbers that share a scale", 1, MAX_DIM, NULL},
    {"window", 0, OPT_U32, F(window), "N", "keys that a query sees", 1, MAX_WINDOW, NULL},
    {"slack", 0, OPT_U32, F(slack), "N", "tokens that can be trimmed off a full window", 1, MAX_WINDOW, NULL},
    {"kept", 0, OPT_U32, F(n_kept), "N", "first tokens that a window keeps", 1, MAX_WINDOW, NULL},
    {"start", 0, OPT_U32, F(start), "N", "position at which the precision changes", 1, MAX_WINDOW, NULL},
    {"inner", 0, OPT_STRING, F(inner), "FAMILY", "what a family around another one stores in", 0, 0, NULL},
    {"latent", 0, OPT_U32, F(d_latent), "N", "dimension of a latent", 1, MAX_DIM, NULL},
    {"rope", 0, OPT_U32, F(d_rope), "N", "dimension of a latent's rotated key", 1, MAX_DIM, NULL},
    {"index-dim", 0, OPT_U32, F(d_index), "N", "dimension of an indexer's key", 1, MAX_DIM, NULL},
    {"top-k", 0, OPT_U32, F(top_k), "N", "keys that an indexer selects", 1, MAX_WINDOW, NULL},
    {"kind", 0, OPT_CHOICE, F(kind), NULL, "of a recurrent layer", 0, 0, "deltanet|mamba2|short-conv"},
    {0},
};

static const struct {
    uint32_t bit;
    const char *name;
} field_names[] = {
    {SENNIT_FIELDS_HEADS, "heads"},         {SENNIT_FIELDS_TYPES, "types"},   {SENNIT_FIELDS_PAGES, "pages"},
    {SENNIT_FIELDS_CODE, "code"},           {SENNIT_FIELDS_WINDOW, "window"}, {SENNIT_FIELDS_START, "start"},
    {SENNIT_FIELDS_RECURRENT, "recurrent"}, {SENNIT_FIELDS_MLA, "mla"},       {SENNIT_FIELDS_INDEX, "index"},
    {SENNIT_FIELDS_INNER, "inner"},         {SENNIT_FIELDS_SOURCE, "source"},
};

/* One family in one geometry. */
struct entry {
    struct sennit_cache_family_info info;
    bool fits;
    char signature[1024];
    uint64_t bytes_per_token, storage_bytes;
    struct sennit_error refusal; /* where it does not fit */
};

/* ---- a configuration from the family's example and the options ------------------------------------------------- */

enum { MAX_INNER = 8 };
struct built {
    struct sennit_cache_config config, inner[MAX_INNER];
    float *constants; /* of a recurrent layer: zeros */
    struct sennit_cache *source;
};

static void set(uint32_t *field, uint32_t given, bool takes)
{
    if (given && takes)
        *field = given;
}

/* The heads' geometry as a recurrent layer's. */
static void recurrent_from(const struct families_opts *o, struct built *b)
{
    struct sennit_cache_config *c = &b->config;
    if (o->kind)
        c->recurrent.kind = o->kind;
    set(&c->recurrent.n_heads, o->n_kv_heads, true);
    set(&c->recurrent.n_key_heads, o->n_kv_heads, true);
    set(&c->recurrent.d_state, o->d_k, true);
    set(&c->recurrent.d_head, o->d_v ? o->d_v : o->d_k, true);
    size_t values = (size_t)c->recurrent.n_heads * c->recurrent.d_head;
    size_t channels = 2 * (size_t)c->recurrent.n_key_heads * c->recurrent.d_state + values;
    if (strcmp(c->recurrent.kind, "short-conv") == 0) {
        channels = values;
        c->recurrent.n_heads = c->recurrent.n_key_heads = c->recurrent.d_state = c->recurrent.d_head = 0;
    }
    if (channels > UINT32_MAX / 64) /* more than the library takes: its message is the answer */
        channels = UINT32_MAX / 64;
    c->recurrent.n_channels = (uint32_t)channels;
    b->constants = cli_alloc((channels * c->recurrent.kernel + 1) * sizeof(float));
    c->recurrent.conv_weight = b->constants;
    if (c->recurrent.n_heads)
        c->recurrent.a_log = c->recurrent.dt_bias = b->constants;
    else
        c->recurrent.a_log = c->recurrent.dt_bias = NULL;
}

/* What was given, in place of what the example says. A field that the family takes is set in `c` itself, in what it
 * wraps (`inner`) only where the example sets it. */
static void apply(const struct families_opts *o, uint32_t fields, bool inner, struct sennit_cache_config *c)
{
    bool heads = fields & SENNIT_FIELDS_HEADS, pages = fields & SENNIT_FIELDS_PAGES;
    bool window = fields & SENNIT_FIELDS_WINDOW, mla = fields & SENNIT_FIELDS_MLA;
    if (inner)
        heads = heads && c->n_kv_heads, pages = pages && c->page_tokens;
    set(&c->n_kv_heads, o->n_kv_heads, heads);
    set(&c->d_k, o->d_k, heads);
    set(&c->d_v, o->d_v ? o->d_v : o->d_k, heads);
    set(&c->page_tokens, o->page_tokens, pages);
    set(&c->code.k_bits, o->k_bits, c->code.k_bits || (mla && !inner));
    set(&c->code.v_bits, o->v_bits ? o->v_bits : o->k_bits, c->code.v_bits);
    set(&c->code.group, o->group, c->code.group);
    set(&c->window.tokens, o->window, window);
    set(&c->window.slack, o->slack, window);
    set(&c->window.n_kept, o->n_kept, window);
    set(&c->mla.d_latent, o->d_latent, mla);
    set(&c->mla.d_rope, o->d_rope, mla);
    set(&c->index.d_index, o->d_index, fields & SENNIT_FIELDS_INDEX);
    set(&c->index.top_k, o->top_k, fields & SENNIT_FIELDS_INDEX);
    if (o->start && (fields & SENNIT_FIELDS_START))
        c->start = o->start;
    if (!o->type || !(fields & SENNIT_FIELDS_TYPES) || (inner && !c->n_kv_heads))
        return;
    sennit_type type = strcmp(o->type, "f16") == 0    ? SENNIT_F16
                       : strcmp(o->type, "bf16") == 0 ? SENNIT_BF16
                                                      : SENNIT_F32;
    c->k_type = type;
    c->v_type = heads ? type : 0;
}

/* The example's inner storage, of another family where the options name one for it. */
static sennit_status apply_inner(const struct families_opts *o, struct built *b, struct sennit_error *err)
{
    struct sennit_cache_config *c = &b->config;
    if (c->n_inner > MAX_INNER)
        c->n_inner = MAX_INNER;
    for (uint32_t i = 0; i < c->n_inner; i++) {
        struct sennit_cache_config *in = &b->inner[i];
        struct sennit_cache_family_info info;
        *in = c->inner[i];
        if (o->inner && c->n_inner == 1)
            in->family = o->inner;
        sennit_status status = sennit_cache_family_info(in->family, &info, err);
        if (status != SENNIT_OK)
            return status;
        if (o->inner && c->n_inner == 1 && info.example) {
            in->code.k_bits = info.example->code.k_bits;
            in->code.v_bits = info.example->code.v_bits;
            in->code.group = info.example->code.group;
            in->start = info.example->start;
            in->inner = info.example->inner;
            in->n_inner = info.example->n_inner;
        }
        apply(o, info.fields, true, in);
    }
    c->inner = c->n_inner ? b->inner : NULL;
    return SENNIT_OK;
}

static sennit_status build(const struct families_opts *o, const struct sennit_cache_family_info *info,
                           struct sennit_pool *pool, struct built *b, struct sennit_error *err)
{
    if (!info->example) {
        *err = (struct sennit_error){.code = SENNIT_INVALID};
        snprintf(err->message, sizeof err->message, "the library's table has no example of this family");
        return SENNIT_INVALID;
    }
    b->config = *info->example;
    apply(o, info->fields, false, &b->config);
    if (info->fields & SENNIT_FIELDS_RECURRENT)
        recurrent_from(o, b);
    if (info->fields & SENNIT_FIELDS_SOURCE) {
        struct sennit_cache_family_info plain;
        sennit_status status = sennit_cache_family_info("plain", &plain, err);
        if (status != SENNIT_OK)
            return status;
        struct sennit_cache_config source = *plain.example;
        apply(o, plain.fields, false, &source);
        status = sennit_cache_create(&b->source, pool, &source, 0, err);
        if (status != SENNIT_OK)
            return status;
        b->config.source = b->source;
    }
    return apply_inner(o, b, err);
}

/* Around a family of codes there may be no types to name. */
static sennit_status create(struct sennit_cache **out, struct sennit_pool *pool, struct built *b,
                            struct sennit_error *err)
{
    sennit_status status = sennit_cache_create(out, pool, &b->config, 0, err);
    if (status == SENNIT_OK || b->config.n_inner != 1 || b->config.k_type == 0)
        return status;
    struct sennit_cache_config untyped = b->config;
    struct sennit_error second = {0};
    untyped.k_type = untyped.v_type = 0;
    return sennit_cache_create(out, pool, &untyped, 0, &second) == SENNIT_OK ? SENNIT_OK : status;
}

static void measure(const struct families_opts *o, struct sennit_pool *pool, struct entry *e)
{
    struct built b = {0};
    struct sennit_cache *cache = NULL;
    if (build(o, &e->info, pool, &b, &e->refusal) == SENNIT_OK &&
        create(&cache, pool, &b, &e->refusal) == SENNIT_OK) {
        e->fits = true;
        snprintf(e->signature, sizeof e->signature, "%s", sennit_cache_signature(cache));
        e->bytes_per_token = sennit_cache_bytes_per_token(cache);
        e->storage_bytes = sennit_cache_projected_bytes(cache, o->tokens);
    }
    sennit_cache_dispose(&cache);
    sennit_cache_dispose(&b.source);
    free(b.constants);
}

/* ---- output ---------------------------------------------------------------------------------------------------- */

static const char *publish_word(sennit_publish_rule rule)
{
    return rule == SENNIT_PUBLISH_ANY ? "any" : rule == SENNIT_PUBLISH_RETAINED ? "retained" : "exact";
}

static json_t *entry_json(const struct entry *e)
{
    const struct sennit_cache_family_info *f = &e->info;
    json_t *v = json_object(), *fields = json_array();
    for (size_t i = 0; i < sizeof field_names / sizeof *field_names; i++)
        if (f->fields & field_names[i].bit)
            json_array_append_new(fields, json_string(field_names[i].name));
    json_object_set_new(v, "name", json_string(f->name));
    json_object_set_new(v, "signature", e->fits ? json_string(e->signature) : json_null());
    json_object_set_new(v, "fields", fields);
    json_object_set_new(v, "trimmable", json_boolean(f->trimmable));
    json_object_set_new(v, "rounds", json_string(f->replays_rounds ? "replay" : "trim"));
    json_object_set_new(v, "publish", json_string(publish_word(f->publish)));
    json_object_set_new(v, "donor_rows", json_boolean(f->donor_rows));
    json_object_set_new(v, "donor_attention", json_boolean(f->donor_attention));
    json_object_set_new(v, "composed", json_boolean(f->composed));
    json_object_set_new(v, "wraps", json_boolean(f->fields & SENNIT_FIELDS_INNER));
    json_object_set_new(v, "precision_change", json_boolean(f->precision_change));
    json_object_set_new(v, "bounded_span", json_boolean(f->bounded_span));
    json_object_set_new(v, "left_pads", json_boolean(f->left_pads));
    json_object_set_new(v, "copies_rows", json_boolean(f->copies_rows));
    json_object_set_new(v, "bytes_per_token", e->fits ? cli_json_u64(e->bytes_per_token) : json_null());
    json_object_set_new(v, "row_bytes", e->fits ? cli_json_u64(e->storage_bytes) : json_null());
    json_object_set_new(v, "refusal", e->fits ? json_null() : json_string(e->refusal.message));
    return v;
}

static void print_notes(const struct sennit_cache_family_info *f)
{
    const struct {
        bool set;
        const char *note;
    } notes[] = {
        {f->composed, "made of parts"},
        {!f->composed && (f->fields & SENNIT_FIELDS_INNER), "inner family"},
        {f->fields & SENNIT_FIELDS_SOURCE, "reads another cache"},
        {f->precision_change, "precision changes"},
        {f->bounded_span, "span bound"},
        {f->left_pads, "left-padded"},
        {f->copies_rows, "rows are copied"},
    };
    const char *before = "  ";
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (notes[i].set) {
            printf("%s%s", before, notes[i].note);
            before = ", ";
        }
    printf("\n");
}

static void print_entry(const struct entry *e)
{
    const struct sennit_cache_family_info *f = &e->info;
    printf("%-12s ", f->name);
    if (e->fits)
        printf("%11llu %14llu", (unsigned long long)e->bytes_per_token, (unsigned long long)e->storage_bytes);
    else
        printf("%11s %14s", "-", "-");
    printf("  %-4s  %-6s  %-8s  %-6s", f->trimmable ? "yes" : "no", f->replays_rounds ? "replay" : "trim",
           publish_word(f->publish), f->donor_rows ? f->donor_attention ? "yes" : "rows" : "no");
    print_notes(f);
    if (e->fits)
        printf("  %s\n", e->signature);
    else
        printf("  not in this geometry: %s\n", e->refusal.message);
}

static int print_all(const struct families_opts *o, const struct entry *entries, size_t n)
{
    if (o->json) {
        json_t *root = json_object(), *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, entry_json(&entries[i]));
        json_object_set_new(root, "tokens", json_integer(o->tokens));
        json_object_set_new(root, "families", list);
        return cli_print_json(root);
    }
    char row[32];
    snprintf(row, sizeof row, "row of %u", o->tokens);
    printf("%-12s %11s %14s  trim  rounds  publish   donors  notes\n", "family", "bytes/token", row);
    for (size_t i = 0; i < n; i++)
        print_entry(&entries[i]);
    return CLI_OK;
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static int list(const struct families_opts *o, const char *only)
{
    struct sennit_error err = {0};
    struct sennit_pool *pool = NULL;
    struct sennit_pool_options options = {0};
    const char *const *names = sennit_cache_families();
    struct sennit_cache_family_info info;
    size_t n = 0, n_names = 0;
    if (only && sennit_cache_family_info(only, &info, &err) != SENNIT_OK) {
        cli_error("%s", err.message);
        return CLI_USAGE;
    }
    if (o->inner && sennit_cache_family_info(o->inner, &info, &err) != SENNIT_OK) {
        cli_error("--inner: %s", err.message);
        return CLI_USAGE;
    }
    if (sennit_pool_create(&pool, &options, &err) != SENNIT_OK)
        return cli_fail(&err);
    while (names[n_names])
        n_names++;
    struct entry *entries = cli_alloc((n_names + 1) * sizeof *entries);
    for (size_t i = 0; i < n_names; i++) {
        if (only && strcmp(names[i], only) != 0)
            continue;
        sennit_cache_family_info(names[i], &entries[n].info, &err);
        measure(o, pool, &entries[n++]);
    }
    int code = print_all(o, entries, n);
    free(entries);
    sennit_pool_free(pool);
    return code;
}

static int run(const struct command *self, int argc, char **argv)
{
    struct families_opts o = {.tokens = DEFAULT_TOKENS};
    struct opt_result r;
    const struct opt_group groups[] = {{"Options", output_table, &o}, {"Geometry", geometry_table, &o}};
    if (!opts_parse(self, groups, 2, argc, argv, &r))
        return CLI_USAGE;
    if (r.help)
        return CLI_OK;
    return list(&o, r.operand);
}

const struct command cmd_cache_families = {
    .name = "cache-families",
    .summary = "lists the families of caches: what each can do, its bytes per token",
    .usage = "[FAMILY] [options]",
    .details = "Without a geometry, each family is shown in a usual size: 8 KV heads of 128, F16. What is given\n"
               "takes the place of that in every family for which it means something.\n"
               "trim: can rows lose their last tokens; rounds: what a rejected draft costs; publish: lengths at\n"
               "which a row can be shared as a prefix; donors: can its keys and values be read by others.\n",
    .examples = "  sennit cache-families\n"
                "  sennit cache-families --kv-heads 3 --d-k 64 --bits 4\n"
                "  sennit cache-families window --inner affine --window 512 --kept 4\n"
                "  sennit cache-families --json | jq '.families[] | {name, bytes_per_token}'\n",
    .operand = "FAMILY",
    .run = run,
};
