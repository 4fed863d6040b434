/* make-corpus gguf|model FOLDER: writes the seed inputs of fuzz/corpus/gguf (one small file per feature of the
 * format, right and wrong) or fuzz/corpus/model (the smallest models that run). The corpus is committed; run this
 * after a change of the format's support, and keep found inputs beside. */
#include <stdio.h>
#include <string.h>

#include "model/edit.h"
#include "sennit/tensor.h"
#include "support/gguf_write.h"

static const char *folder;

static void save(struct gguf_writer *w, const char *name)
{
    char path[1024];
    struct gguf_bytes file;
    gw_finish(w, &file);
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    gguf_bytes_save(&file, path);
    printf("%s: %zu bytes\n", path, file.len);
    gguf_bytes_free(&file);
}

static void scalars(uint32_t version, const char *name)
{
    struct gguf_writer w;
    gw_init(&w, version);
    gw_u8(&w, "u8", 255);
    gw_i8(&w, "i8", -1);
    gw_u16(&w, "u16", 65535);
    gw_i16(&w, "i16", -2);
    gw_u32(&w, "u32", UINT32_MAX);
    gw_i32(&w, "i32", INT32_MIN);
    gw_u64(&w, "u64", UINT64_MAX);
    gw_i64(&w, "i64", INT64_MIN);
    gw_f32(&w, "f32", 1e-5f);
    gw_f64(&w, "f64", 1e300);
    gw_bool(&w, "bool", true);
    gw_str(&w, "str", "text \xC4\xA0\xFF");
    save(&w, name);
}

static void arrays(void)
{
    struct gguf_writer w;
    gw_init(&w, 3);
    gw_array_str(&w, "words", (const char *const[]){"the", "", "of", "\n"}, 4);
    gw_array(&w, "i32", GW_I32, (int32_t[]){1, -1, 3}, 3);
    gw_array(&w, "f32", GW_F32, (float[]){0.5f, -0.0f}, 2);
    gw_array(&w, "u64", GW_U64, (uint64_t[]){UINT64_MAX}, 1);
    gw_array(&w, "f64", GW_F64, (double[]){1.0}, 1);
    gw_array(&w, "bools", GW_BOOL, "\1\0\1", 3);
    gw_array(&w, "bytes", GW_U8, "abc", 3);
    gw_array(&w, "none", GW_I16, NULL, 0);
    gw_array_str(&w, "none of them", NULL, 0);
    save(&w, "arrays");
}

static void tensors(void)
{
    static const uint8_t zeros[256];
    struct gguf_writer w;
    gw_init(&w, 3);
    gw_u32(&w, "general.alignment", 8);
    w.alignment = 8;
    gw_tensor(&w, "q8", SENNIT_Q8_0, 2, (uint64_t[]){32, 2}, zeros, 68);
    gw_tensor(&w, "q4k", SENNIT_Q4_K, 1, (uint64_t[]){256}, zeros, 144);
    gw_tensor(&w, "cube", SENNIT_I8, 4, (uint64_t[]){2, 1, 3, 2}, zeros, 12);
    gw_tensor(&w, "f32", SENNIT_F32, 1, (uint64_t[]){3}, zeros, 12);
    save(&w, "tensors");
}

/* Files which are refused, near the checks that do it. */
static void wrong(void)
{
    const uint64_t dims[5] = {32, 1, 1, 1, 1};
    struct gguf_writer w;
    gw_init(&w, 1);
    save(&w, "version_1");
    gw_init(&w, 0x03000000);
    save(&w, "big_endian");
    gw_init(&w, 3);
    gw_raw(&w, "k", 1, GW_ARRAY, "\x08\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x1F", 12);
    save(&w, "array_count");
    gw_init(&w, 3);
    gw_raw(&w, "k", 1, GW_ARRAY, "\x09\0\0\0\1\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0", 24);
    save(&w, "nested");
    gw_init(&w, 3);
    gw_tensor_raw(&w, "t", 1, 5, dims, 5, SENNIT_F32, 0);
    save(&w, "n_dims_5");
    gw_init(&w, 3);
    gw_tensor_raw(&w, "a", 1, 1, dims, 1, SENNIT_F32, 32);
    gw_tensor_raw(&w, "b", 1, 1, dims, 1, SENNIT_F32, 0);
    for (int i = 0; i < 40; i++)
        gguf_bytes_u32(&w.data, 0);
    save(&w, "overlap");
}

/* The smallest model, the same with an output of its own, and one that is refused late. */
static void models(void)
{
    struct tiny_spec spec = smallest_spec();
    struct gguf_bytes file;
    char path[1024];
    static const struct edit late = {.drop = "output_norm.weight"};
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"smallest", "untied", "no_norm"};
        spec.tied = i != 1;
        edited_model(&spec, i == 2 ? &late : &(struct edit){0}, &file);
        snprintf(path, sizeof path, "%s/%s.gguf", folder, names[i]);
        gguf_bytes_save(&file, path);
        printf("%s: %zu bytes\n", path, file.len);
        gguf_bytes_free(&file);
    }
}

int main(int argc, char **argv)
{
    bool model = argc == 3 && strcmp(argv[1], "model") == 0;
    if (argc != 3 || (!model && strcmp(argv[1], "gguf") != 0)) {
        fprintf(stderr, "usage: %s gguf|model FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[2];
    if (model) {
        models();
        return 0;
    }
    scalars(2, "scalars_v2");
    scalars(3, "scalars_v3");
    arrays();
    tensors();
    wrong();
    return 0;
}
