// Package wire iterates over the fields of a protocol buffer message. TensorBoard and W&B
// files hold such messages, and only a few fields of each matter, so no code is generated
// from their schemas. Package tfevents and package wandbfile use it; protowire decodes the
// fields themselves.
package wire

import (
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is one field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Bits   uint64 // of a varint or fixed-size field
	Bytes  []byte // of a string, bytes or message field; nil for the others
}

// ErrMalformed says that the bytes are not a protocol buffer message.
var ErrMalformed = errors.New("not a protocol buffer message")

// Float32 is the value of a float field.
func (f Field) Float32() float64 { return float64(math.Float32frombits(uint32(f.Bits))) }

// Float64 is the value of a double field.
func (f Field) Float64() float64 { return math.Float64frombits(f.Bits) }

// Int is the value of an int32 or int64 field.
func (f Field) Int() int64 { return int64(f.Bits) }

// Each calls fn with every field of a message, in order, until fn fails or the message
// is malformed. Groups are deprecated and rejected.
func Each(msg []byte, fn func(Field) error) error {
	for len(msg) > 0 {
		number, kind, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return ErrMalformed
		}

		msg = msg[n:]

		f := Field{Number: number, Type: kind}
		if kind == protowire.BytesType {
			f.Bytes, n = protowire.ConsumeBytes(msg)
		} else {
			f.Bits, n = Scalar(msg, kind)
		}

		if n < 0 {
			return ErrMalformed
		}

		msg = msg[n:]

		if err := fn(f); err != nil {
			return err
		}
	}

	return nil
}

// Scalar decodes the varint or fixed-size value that msg begins with. It returns the
// bits of the value and its length, which is negative if there is no such value.
func Scalar(msg []byte, kind protowire.Type) (bits uint64, length int) {
	switch kind {
	case protowire.VarintType:
		return protowire.ConsumeVarint(msg)
	case protowire.Fixed64Type:
		return protowire.ConsumeFixed64(msg)
	case protowire.Fixed32Type:
		v, n := protowire.ConsumeFixed32(msg)
		return uint64(v), n
	case protowire.BytesType, protowire.StartGroupType, protowire.EndGroupType:
	}

	return 0, -1
}
