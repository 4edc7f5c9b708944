package tfevents

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"trainyard/internal/agent/metrics/wire"
)

// The kinds of numbers that tensors may hold, as the format numbers them.
const (
	kindFloat    = 1
	kindDouble   = 2
	kindInt32    = 3
	kindInt64    = 9
	kindBfloat16 = 14
	kindHalf     = 19
)

// tensor reads a tensor, if it holds a single number. The number is in the content as
// it would lie in memory, or in a list for its kind.
func tensor(msg []byte) (value float64, single bool, err error) {
	var kind int64
	var content []byte
	var listed []float64

	err = wire.Each(msg, func(f wire.Field) error {
		switch f.Number {
		case 1:
			kind = f.Int()
		case 4:
			content = f.Bytes
		case 5: // of float
			return list(f, protowire.Fixed32Type, &listed, wire.Field.Float32)
		case 6: // of double
			return list(f, protowire.Fixed64Type, &listed, wire.Field.Float64)
		case 7, 10: // of int32 and int64
			return list(f, protowire.VarintType, &listed, func(f wire.Field) float64 { return float64(f.Int()) })
		case 13: // of half and bfloat16, by their bits
			return list(f, protowire.VarintType, &listed, func(f wire.Field) float64 { return short(uint16(f.Bits), kind) })
		}

		return nil
	})
	if err != nil {
		return 0, false, err
	}
	if len(listed) == 1 {
		return listed[0], true, nil
	}

	value, single = inMemory(content, kind)

	return value, single, nil
}

// list appends the numbers of a repeated field, packed or not. It stops at two: only a
// tensor of exactly one number is a scalar.
func list(f wire.Field, kind protowire.Type, to *[]float64, number func(wire.Field) float64) error {
	if len(*to) > 1 {
		return nil
	}

	if f.Type == kind {
		*to = append(*to, number(f))
		return nil
	}

	if f.Type != protowire.BytesType {
		return wire.ErrMalformed
	}

	for packed := f.Bytes; len(packed) > 0 && len(*to) < 2; {
		bits, n := wire.Scalar(packed, kind)
		if n < 0 {
			return wire.ErrMalformed
		}

		*to = append(*to, number(wire.Field{Type: kind, Bits: bits}))
		packed = packed[n:]
	}

	return nil
}

// inMemory reads a single number as it lies in memory.
func inMemory(b []byte, kind int64) (float64, bool) {
	switch {
	case kind == kindFloat && len(b) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case kind == kindDouble && len(b) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	case kind == kindInt32 && len(b) == 4:
		return float64(int32(binary.LittleEndian.Uint32(b))), true
	case kind == kindInt64 && len(b) == 8:
		return float64(int64(binary.LittleEndian.Uint64(b))), true
	case (kind == kindHalf || kind == kindBfloat16) && len(b) == 2:
		return short(binary.LittleEndian.Uint16(b), kind), true
	}

	return 0, false
}

// short turns the bits of a number of half length into a number.
func short(bits uint16, kind int64) float64 {
	if kind == kindBfloat16 {
		return float64(math.Float32frombits(uint32(bits) << 16))
	}

	sign := 1.0
	if bits&0x8000 != 0 {
		sign = -1
	}

	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	switch exponent {
	case 0:
		return sign * fraction * 0x1p-24
	case 0x1f:
		if fraction != 0 {
			return math.NaN()
		}

		return math.Inf(int(sign))
	}

	return sign * (1 + fraction/1024) * math.Pow(2, float64(exponent-15))
}
