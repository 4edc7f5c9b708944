#include "textflag.h"

// The constants of the rounds.
DATA constants<>+0(SB)/8, $0x71374491428a2f98
DATA constants<>+8(SB)/8, $0xe9b5dba5b5c0fbcf
DATA constants<>+16(SB)/8, $0x59f111f13956c25b
DATA constants<>+24(SB)/8, $0xab1c5ed5923f82a4
DATA constants<>+32(SB)/8, $0x12835b01d807aa98
DATA constants<>+40(SB)/8, $0x550c7dc3243185be
DATA constants<>+48(SB)/8, $0x80deb1fe72be5d74
DATA constants<>+56(SB)/8, $0xc19bf1749bdc06a7
DATA constants<>+64(SB)/8, $0xefbe4786e49b69c1
DATA constants<>+72(SB)/8, $0x240ca1cc0fc19dc6
DATA constants<>+80(SB)/8, $0x4a7484aa2de92c6f
DATA constants<>+88(SB)/8, $0x76f988da5cb0a9dc
DATA constants<>+96(SB)/8, $0xa831c66d983e5152
DATA constants<>+104(SB)/8, $0xbf597fc7b00327c8
DATA constants<>+112(SB)/8, $0xd5a79147c6e00bf3
DATA constants<>+120(SB)/8, $0x1429296706ca6351
DATA constants<>+128(SB)/8, $0x2e1b213827b70a85
DATA constants<>+136(SB)/8, $0x53380d134d2c6dfc
DATA constants<>+144(SB)/8, $0x766a0abb650a7354
DATA constants<>+152(SB)/8, $0x92722c8581c2c92e
DATA constants<>+160(SB)/8, $0xa81a664ba2bfe8a1
DATA constants<>+168(SB)/8, $0xc76c51a3c24b8b70
DATA constants<>+176(SB)/8, $0xd6990624d192e819
DATA constants<>+184(SB)/8, $0x106aa070f40e3585
DATA constants<>+192(SB)/8, $0x1e376c0819a4c116
DATA constants<>+200(SB)/8, $0x34b0bcb52748774c
DATA constants<>+208(SB)/8, $0x4ed8aa4a391c0cb3
DATA constants<>+216(SB)/8, $0x682e6ff35b9cca4f
DATA constants<>+224(SB)/8, $0x78a5636f748f82ee
DATA constants<>+232(SB)/8, $0x8cc7020884c87814
DATA constants<>+240(SB)/8, $0xa4506ceb90befffa
DATA constants<>+248(SB)/8, $0xc67178f2bef9a3f7
GLOBL constants<>(SB), RODATA|NOPTR, $256

// Reverses the bytes of each of four words.
DATA swap<>+0(SB)/8, $0x0405060700010203
DATA swap<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL swap<>(SB), RODATA|NOPTR, $16

// LOAD reads four words of the message.
#define LOAD(from, m) \
	MOVOU from, m; \
	PSHUFB X15, m

// ROUNDS does four rounds with four words. abef and cdgh are the state.
#define ROUNDS(abef, cdgh, m, k) \
	MOVOU k(DX), X0; \
	PADDD m, X0; \
	SHA256RNDS2 X0, abef, cdgh; \
	PSHUFD $0x0e, X0, X0; \
	SHA256RNDS2 X0, cdgh, abef

// EXPAND makes the words that follow m3, in m0, of the sixteen before them. SHA256MSG1 has been applied to m0.
#define EXPAND(m0, m2, m3) \
	MOVO m3, X14; \
	PALIGNR $4, m2, X14; \
	PADDD X14, m0; \
	SHA256MSG2 m3, m0

// func blocks(x, y *state, p, q *byte, n int)
//
// x is X1, X2 with the words X3 to X6, y is X7, X8 with the words X9 to X12.
TEXT ·blocks(SB), NOSPLIT, $64-40
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), BX
	MOVQ p+16(FP), SI
	MOVQ q+24(FP), DI
	MOVQ n+32(FP), CX
	LEAQ constants<>(SB), DX
	MOVOU swap<>(SB), X15
	MOVOU (AX), X1
	MOVOU 16(AX), X2
	MOVOU (BX), X7
	MOVOU 16(BX), X8
	TESTQ CX, CX
	JZ done

block:
	MOVOU X1, state-64(SP)
	MOVOU X2, state-48(SP)
	MOVOU X7, state-32(SP)
	MOVOU X8, state-16(SP)

	// Rounds 0 to 3.
	LOAD(0(SI), X3)
	ROUNDS(X1, X2, X3, 0)
	LOAD(0(DI), X9)
	ROUNDS(X7, X8, X9, 0)

	// Rounds 4 to 7.
	LOAD(16(SI), X4)
	ROUNDS(X1, X2, X4, 16)
	SHA256MSG1 X4, X3
	LOAD(16(DI), X10)
	ROUNDS(X7, X8, X10, 16)
	SHA256MSG1 X10, X9

	// Rounds 8 to 11.
	LOAD(32(SI), X5)
	ROUNDS(X1, X2, X5, 32)
	SHA256MSG1 X5, X4
	LOAD(32(DI), X11)
	ROUNDS(X7, X8, X11, 32)
	SHA256MSG1 X11, X10

	// Rounds 12 to 15.
	LOAD(48(SI), X6)
	ROUNDS(X1, X2, X6, 48)
	EXPAND(X3, X5, X6)
	SHA256MSG1 X6, X5
	LOAD(48(DI), X12)
	ROUNDS(X7, X8, X12, 48)
	EXPAND(X9, X11, X12)
	SHA256MSG1 X12, X11

	// Rounds 16 to 19.
	ROUNDS(X1, X2, X3, 64)
	EXPAND(X4, X6, X3)
	SHA256MSG1 X3, X6
	ROUNDS(X7, X8, X9, 64)
	EXPAND(X10, X12, X9)
	SHA256MSG1 X9, X12

	// Rounds 20 to 23.
	ROUNDS(X1, X2, X4, 80)
	EXPAND(X5, X3, X4)
	SHA256MSG1 X4, X3
	ROUNDS(X7, X8, X10, 80)
	EXPAND(X11, X9, X10)
	SHA256MSG1 X10, X9

	// Rounds 24 to 27.
	ROUNDS(X1, X2, X5, 96)
	EXPAND(X6, X4, X5)
	SHA256MSG1 X5, X4
	ROUNDS(X7, X8, X11, 96)
	EXPAND(X12, X10, X11)
	SHA256MSG1 X11, X10

	// Rounds 28 to 31.
	ROUNDS(X1, X2, X6, 112)
	EXPAND(X3, X5, X6)
	SHA256MSG1 X6, X5
	ROUNDS(X7, X8, X12, 112)
	EXPAND(X9, X11, X12)
	SHA256MSG1 X12, X11

	// Rounds 32 to 35.
	ROUNDS(X1, X2, X3, 128)
	EXPAND(X4, X6, X3)
	SHA256MSG1 X3, X6
	ROUNDS(X7, X8, X9, 128)
	EXPAND(X10, X12, X9)
	SHA256MSG1 X9, X12

	// Rounds 36 to 39.
	ROUNDS(X1, X2, X4, 144)
	EXPAND(X5, X3, X4)
	SHA256MSG1 X4, X3
	ROUNDS(X7, X8, X10, 144)
	EXPAND(X11, X9, X10)
	SHA256MSG1 X10, X9

	// Rounds 40 to 43.
	ROUNDS(X1, X2, X5, 160)
	EXPAND(X6, X4, X5)
	SHA256MSG1 X5, X4
	ROUNDS(X7, X8, X11, 160)
	EXPAND(X12, X10, X11)
	SHA256MSG1 X11, X10

	// Rounds 44 to 47.
	ROUNDS(X1, X2, X6, 176)
	EXPAND(X3, X5, X6)
	SHA256MSG1 X6, X5
	ROUNDS(X7, X8, X12, 176)
	EXPAND(X9, X11, X12)
	SHA256MSG1 X12, X11

	// Rounds 48 to 51.
	ROUNDS(X1, X2, X3, 192)
	EXPAND(X4, X6, X3)
	SHA256MSG1 X3, X6
	ROUNDS(X7, X8, X9, 192)
	EXPAND(X10, X12, X9)
	SHA256MSG1 X9, X12

	// Rounds 52 to 55.
	ROUNDS(X1, X2, X4, 208)
	EXPAND(X5, X3, X4)
	ROUNDS(X7, X8, X10, 208)
	EXPAND(X11, X9, X10)

	// Rounds 56 to 59.
	ROUNDS(X1, X2, X5, 224)
	EXPAND(X6, X4, X5)
	ROUNDS(X7, X8, X11, 224)
	EXPAND(X12, X10, X11)

	// Rounds 60 to 63.
	ROUNDS(X1, X2, X6, 240)
	ROUNDS(X7, X8, X12, 240)

	MOVOU state-64(SP), X0
	PADDD X0, X1
	MOVOU state-48(SP), X0
	PADDD X0, X2
	MOVOU state-32(SP), X0
	PADDD X0, X7
	MOVOU state-16(SP), X0
	PADDD X0, X8
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ CX
	JNZ block

done:
	MOVOU X1, (AX)
	MOVOU X2, 16(AX)
	MOVOU X7, (BX)
	MOVOU X8, 16(BX)
	RET

// func hasInstructions() bool
//
// They are those of SHA, bit 29 of EBX of leaf 7, and of SSSE3, bit 9 of ECX of leaf 1.
TEXT ·hasInstructions(SB), NOSPLIT, $0-1
	MOVB $0, ret+0(FP)
	XORL AX, AX
	XORL CX, CX
	CPUID
	CMPL AX, $7
	JLT none
	MOVL $1, AX
	XORL CX, CX
	CPUID
	TESTL $0x200, CX
	JZ none
	MOVL $7, AX
	XORL CX, CX
	CPUID
	SHRL $29, BX
	ANDL $1, BX
	MOVB BX, ret+0(FP)

none:
	RET
