package container

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"runtime"
)

// Images need not have a program that waits, so each container gets one: it opens the pipe whose other end the
// supervisor of the rank has, reads until that is gone, and exits. It does not wait for a writer when it opens the
// pipe: the agent may have been killed before. It is written in machine code, because it must run in images without
// any library and for whatever our own binary was built; with Go it would have a megabyte.

// holderText is the code of the holder, which the path of the pipe follows.
var holderText = map[string][]byte{
	"amd64": {
		0xb8, 0x02, 0x00, 0x00, 0x00, // mov eax, 2       open
		0x48, 0x8d, 0x3d, 0x38, 0x00, 0x00, 0x00, // lea rdi, [path]
		0xbe, 0x00, 0x08, 0x00, 0x00, // mov esi, 0x800   O_RDONLY|O_NONBLOCK
		0x31, 0xd2, // xor edx, edx
		0x0f, 0x05, // syscall
		0x89, 0xc3, // mov ebx, eax
		0xb8, 0x48, 0x00, 0x00, 0x00, // mov eax, 72      fcntl
		0x89, 0xdf, // mov edi, ebx
		0xbe, 0x04, 0x00, 0x00, 0x00, // mov esi, 4       F_SETFL
		0x31, 0xd2, // xor edx, edx
		0x0f, 0x05, // syscall
		0x31, 0xc0, // again: xor eax, eax   read
		0x89, 0xdf, // mov edi, ebx
		0x48, 0x8d, 0x74, 0x24, 0xf8, // lea rsi, [rsp-8]
		0xba, 0x01, 0x00, 0x00, 0x00, // mov edx, 1
		0x0f, 0x05, // syscall
		0x85, 0xc0, // test eax, eax
		0x7f, 0xec, // jg again
		0xb8, 0x3c, 0x00, 0x00, 0x00, // mov eax, 60      exit
		0x31, 0xff, // xor edi, edi
		0x0f, 0x05, // syscall
	},
	"arm64": words(
		0xd2800708, // mov x8, #56      openat
		0x92800c60, // mov x0, #-100    AT_FDCWD
		0x10000281, // adr x1, path
		0xd2810002, // mov x2, #0x800   O_RDONLY|O_NONBLOCK
		0xd2800003, // mov x3, #0
		0xd4000001, // svc #0
		0xaa0003f3, // mov x19, x0
		0xd2800328, // mov x8, #25      fcntl
		0xaa1303e0, // mov x0, x19
		0xd2800081, // mov x1, #4       F_SETFL
		0xd2800002, // mov x2, #0
		0xd4000001, // svc #0
		0xd28007e8, // again: mov x8, #63   read
		0xaa1303e0, // mov x0, x19
		0xd10043e1, // sub x1, sp, #16
		0xd2800022, // mov x2, #1
		0xd4000001, // svc #0
		0xf100001f, // cmp x0, #0
		0x54ffff4c, // b.gt again
		0xd2800ba8, // mov x8, #93      exit
		0xd2800000, // mov x0, #0
		0xd4000001, // svc #0
	),
}

var holderMachine = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// words writes instructions of four bytes.
func words(list ...uint32) []byte {
	var out []byte
	for _, w := range list {
		out = binary.LittleEndian.AppendUint32(out, w)
	}

	return out
}

// holder returns the program that holds a container until the pipe with this path has no writer any more.
func holder(pipe string) ([]byte, error) {
	code, known := holderText[runtime.GOARCH]
	if !known {
		return nil, fmt.Errorf("containers are not supported on %s", runtime.GOARCH)
	}

	const (
		base       = 0x400000
		headerSize = 64
		loadSize   = 56
	)

	text := append(append(bytes.Clone(code), pipe...), 0)
	size := uint64(headerSize + loadSize + len(text))

	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(holderMachine[runtime.GOARCH]), Version: uint32(elf.EV_CURRENT),
		Entry: base + headerSize + loadSize, Phoff: headerSize, Ehsize: headerSize, Phentsize: loadSize, Phnum: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)

	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base,
		Filesz: size, Memsz: size, Align: 0x1000,
	}

	var out bytes.Buffer
	for _, part := range []any{header, load, text} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}

	return out.Bytes(), nil
}
