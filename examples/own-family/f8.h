/* The cache family "f8": keys and values in 8-bit floats, a quarter of f32 and half of f16. */
#ifndef F8_H
#define F8_H

#include <sennit/family.h>

/* Names "f8" and "f8-e5m2". Borrowed by what is made with them, which is for ever. */
extern const struct sennit_family f8_e4m3; /* up to 448, relative steps of 1/8 to 1/16 */
extern const struct sennit_family f8_e5m2; /* up to 57344, relative steps of 1/4 to 1/8 */

#endif
