// Package wire reads the fields of protocol buffer messages one by one. The files that
// TensorBoard and W&B write hold such messages; of each only a few fields matter, so that no
// code is generated from their descriptions.
package wire

import (
	"encoding/binary"
	"errors"
	"math"
)

// Field is one field of a message as it lies in the bytes.
type Field struct {
	Number int
	Bits   uint64 // of a field of fixed or varying length: all but strings and messages
	Bytes  []byte // of a string or message, nil for the others
	Kind   Kind
}

// Kind says how a field is written.
type Kind int

// The kinds that are in use.
const (
	Varint  Kind = 0
	Fixed64 Kind = 1
	Bytes   Kind = 2
	Fixed32 Kind = 5
)

// ErrMalformed says that bytes are no message.
var ErrMalformed = errors.New("not a protocol buffer message")

// Float32 is the field as a number of single length.
func (f Field) Float32() float64 { return float64(math.Float32frombits(uint32(f.Bits))) }

// Float64 is the field as a number of double length.
func (f Field) Float64() float64 { return math.Float64frombits(f.Bits) }

// Int is the field as a whole number with a sign.
func (f Field) Int() int64 { return int64(f.Bits) }

// Each calls fn with every field of a message, in order, until fn fails or the bytes
// make no sense. Groups, which nobody writes any more, are refused.
func Each(msg []byte, fn func(Field) error) error {
	for len(msg) > 0 {
		f, n := next(msg)
		if n <= 0 {
			return ErrMalformed
		}
		msg = msg[n:]
		if err := fn(f); err != nil {
			return err
		}
	}
	return nil
}

// next reads the first field and says how many bytes it takes, 0 if it is none.
func next(msg []byte) (Field, int) {
	tag, n := binary.Uvarint(msg)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return Field{}, 0
	}
	f := Field{Number: int(tag >> 3), Kind: Kind(tag & 7)}
	rest := msg[n:]
	switch f.Kind {
	case Varint:
		v, m := binary.Uvarint(rest)
		if m <= 0 {
			return f, 0
		}
		f.Bits = v
		return f, n + m
	case Fixed64:
		if len(rest) < 8 {
			return f, 0
		}
		f.Bits = binary.LittleEndian.Uint64(rest)
		return f, n + 8
	case Fixed32:
		if len(rest) < 4 {
			return f, 0
		}
		f.Bits = uint64(binary.LittleEndian.Uint32(rest))
		return f, n + 4
	case Bytes:
		length, m := binary.Uvarint(rest)
		if m <= 0 || length > uint64(len(rest)-m) {
			return f, 0
		}
		f.Bytes = rest[m : m+int(length) : m+int(length)]
		return f, n + m + int(length)
	}
	return f, 0
}
