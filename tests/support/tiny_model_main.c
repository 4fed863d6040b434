/* tiny-model: writes a tiny random Llama as a GGUF file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/tiny_model.h"

static const char usage[] = "usage: tiny-model --out PATH [--seed N] [--type T] [--embd-type T] "
                            "[--layers N] [--d-model N] [--heads N]\n"
                            "                  [--kv-heads N] [--head-dim N] [--d-ff N] [--vocab "
                            "N] [--context N] [--rope-base X]\n"
                            "                  [--eps X] [--untied] [--gguf 2|3]\n"
                            "Types: F32 F16 BF16 Q8_0 Q4_0 Q4_1. --type sets both types; "
                            "--embd-type after it only that of the embedding.\n";

static void refuse(const char *what, const char *value)
{
    fprintf(stderr, "tiny-model: %s '%s'\n%s", what, value, usage);
    exit(2);
}

static uint64_t number(const char *text)
{
    char *end;
    errno = 0;
    uint64_t v = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0' || *text == '-')
        refuse("not a number:", text);
    return v;
}

static float real(const char *text)
{
    char *end;
    float v = strtof(text, &end);
    if (end == text || *end != '\0')
        refuse("not a number:", text);
    return v;
}

static sennit_type type_named(const char *name)
{
    static const sennit_type types[] = {SENNIT_F32,  SENNIT_F16,  SENNIT_BF16,
                                        SENNIT_Q8_0, SENNIT_Q4_0, SENNIT_Q4_1};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, sennit_type_name(types[i])) == 0)
            return types[i];
    refuse("no such type:", name);
    return SENNIT_F32;
}

/* Sets the number behind a flag; false when there is no such flag. */
static bool set_number(struct tiny_spec *s, const char *flag, const char *value)
{
    const struct {
        const char *flag;
        uint32_t *field;
    } fields[] = {{"--layers", &s->n_layers},       {"--d-model", &s->d_model},
                  {"--heads", &s->n_heads},         {"--kv-heads", &s->n_kv_heads},
                  {"--head-dim", &s->head_dim},     {"--d-ff", &s->d_ff},
                  {"--vocab", &s->n_vocab},         {"--gguf", &s->version},
                  {"--context", &s->context_length}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(flag, fields[i].flag) != 0)
            continue;
        uint64_t v = number(value);
        if (v > UINT32_MAX)
            refuse("too large:", value);
        *fields[i].field = (uint32_t)v;
        return true;
    }
    return false;
}

static void set(struct tiny_spec *s, const char **out, const char *flag, const char *value)
{
    if (strcmp(flag, "--out") == 0)
        *out = value;
    else if (strcmp(flag, "--seed") == 0)
        s->seed = number(value);
    else if (strcmp(flag, "--type") == 0)
        s->type = s->embd_type = type_named(value);
    else if (strcmp(flag, "--embd-type") == 0)
        s->embd_type = type_named(value);
    else if (strcmp(flag, "--rope-base") == 0)
        s->rope_base = real(value);
    else if (strcmp(flag, "--eps") == 0)
        s->eps = real(value);
    else if (!set_number(s, flag, value))
        refuse("unknown option", flag);
}

int main(int argc, char **argv)
{
    struct tiny_spec spec = tiny_spec_default();
    const char *out = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout) < 0;
        if (strcmp(argv[i], "--untied") == 0)
            spec.tied = false;
        else if (i + 1 == argc)
            refuse("no value after", argv[i]);
        else {
            set(&spec, &out, argv[i], argv[i + 1]);
            i++;
        }
    }
    const char *wrong = out ? tiny_spec_check(&spec) : "--out is missing";
    if (wrong)
        refuse("cannot build this model:", wrong);
    tiny_model_write(&spec, out);
    return 0;
}
