/* What every fuzz target defines; libFuzzer calls it, or standalone_main.c does over files. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Aborts when the code under test misbehaves; returns 0 otherwise. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#endif
