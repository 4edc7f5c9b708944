package digest

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
)

// state is the state of a hash in the order in which the instructions take it: f, e, b, a, h, g, d, c.
type state [8]uint32

// order says which of a to h each word of a state is.
var order = [8]int{5, 4, 1, 0, 7, 6, 3, 2}

// initial is the state before the first byte, as SHA-256 defines it.
var initial = state{
	0x9b05688c, 0x510e527f, 0xbb67ae85, 0x6a09e667, 0x5be0cd19, 0x1f83d9ab, 0xa54ff53a, 0x3c6ef372,
}

// finish returns the digest of data, of which the first bytes, whole blocks, have led to this state.
func (s *state) finish(data []byte, at int) Sum {
	h := sha256.New()

	if rest, ok := h.(encoding.BinaryUnmarshaler); at > 0 && ok && rest.UnmarshalBinary(s.marshal(at)) == nil {
		data = data[at:]
	}

	_, _ = h.Write(data) // never fails

	return Sum(h.Sum(nil))
}

// marshal returns the state as crypto/sha256 marshals that of a hash after so many bytes.
func (s *state) marshal(at int) []byte {
	var words [8]uint32
	for i, word := range order {
		words[word] = s[i]
	}

	text := []byte("sha\x03")
	for _, w := range words {
		text = binary.BigEndian.AppendUint32(text, w)
	}

	text = append(text, make([]byte, sha256.BlockSize)...) // of a block that is not whole

	return binary.BigEndian.AppendUint64(text, uint64(at))
}

// standard reports whether crypto/sha256 goes on from a state of ours. It marshals its own as we do then.
func standard() bool {
	h, ok := sha256.New().(encoding.BinaryMarshaler)
	if !ok {
		return false
	}

	text, err := h.MarshalBinary()

	return err == nil && bytes.Equal(text, initial.marshal(0))
}
