// Package tfevents reads the event files of TensorBoard as they grow: the framing of
// records with its checksums, and of the messages in them the scalars. PyTorch,
// TensorFlow, Keras, JAX and TensorBoard's own writers all make such files. Package
// metrics finds the files and reads their bytes; this package knows no files.
package tfevents

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/agent/metrics/wire"
)

// MaxRecord is the largest record that is looked into. Larger ones hold pictures and graphs and are
// stepped over.
const MaxRecord = 1 << 20

// The framing: the length, its checksum, the record, its checksum.
const (
	headSize = 12
	tailSize = 4
	// MaxFrame is how many bytes Decode must be able to see at once.
	MaxFrame = headSize + MaxRecord + tailSize
)

// ErrFraming says that the length of a record cannot be trusted, so that nothing behind it
// can be found.
var ErrFraming = errors.New("checksum mismatch in a record length")

// masked is the checksum as the format has it.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) // the table is made once
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// Decoder reads one file from its beginning. Its zero value is ready.
type Decoder struct {
	// Damaged counts records whose checksum was wrong or whose message made no sense.
	Damaged int
	skip    uint64 // bytes of a large record that are still to come
}

// Decode reads the whole records that data begins with and says how many bytes they
// took: data must begin there the next time, and a record that is not whole yet waits.
// A damaged record is counted and left out; ErrFraming ends the reading of the file.
func (d *Decoder) Decode(data []byte) (readings []reading.Reading, used int, err error) {
	for {
		n := int(min(d.skip, uint64(len(data)-used)))
		d.skip -= uint64(n)
		used += n
		rest := data[used:]
		if d.skip > 0 || len(rest) < headSize {
			return readings, used, nil
		}

		length := binary.LittleEndian.Uint64(rest)
		if masked(rest[:8]) != binary.LittleEndian.Uint32(rest[8:]) || length > math.MaxInt64-headSize-tailSize {
			return readings, used, ErrFraming
		}

		if length > MaxRecord {
			d.skip = headSize + length + tailSize
			continue
		}

		whole := headSize + int(length) + tailSize
		if len(rest) < whole {
			return readings, used, nil
		}

		record := rest[headSize : headSize+int(length)]
		used += whole

		if masked(record) != binary.LittleEndian.Uint32(rest[headSize+length:]) {
			d.Damaged++
			continue
		}

		r, err := event(record)
		if err != nil {
			d.Damaged++
			continue
		}

		if len(r.Values) > 0 {
			readings = append(readings, r)
		}
	}
}

// event reads the message of one record.
func event(msg []byte) (reading.Reading, error) {
	r := reading.Reading{Step: reading.Known(0)} // a step of 0 is not written
	err := wire.Each(msg, func(f wire.Field) error {
		switch {
		case f.Number == 1 && f.Type == protowire.Fixed64Type:
			if at := f.Float64(); !math.IsNaN(at) && !math.IsInf(at, 0) {
				r.At = at
			}
		case f.Number == 2 && f.Type == protowire.VarintType:
			r.Step = reading.Known(float64(f.Int()))
		case f.Number == 5 && f.Type == protowire.BytesType:
			return summary(f.Bytes, &r)
		}

		return nil
	})

	return r, err
}

// summary reads the values of an event.
func summary(msg []byte, r *reading.Reading) error {
	return wire.Each(msg, func(f wire.Field) error {
		if f.Number != 1 || f.Type != protowire.BytesType {
			return nil
		}

		tag, value, ok, err := scalar(f.Bytes)
		if err == nil && ok {
			r.Add(tag, value)
		}

		return err
	})
}

// scalar reads one value of a summary, if it is a single number.
func scalar(msg []byte) (tag string, value float64, ok bool, err error) {
	err = wire.Each(msg, func(f wire.Field) error {
		switch {
		case f.Number == 1 && f.Type == protowire.BytesType:
			tag = string(f.Bytes)
		case f.Number == 2 && f.Type == protowire.Fixed32Type:
			value, ok = f.Float32(), true
		case f.Number == 8 && f.Type == protowire.BytesType:
			v, single, err := tensor(f.Bytes)
			if single {
				value, ok = v, true
			}

			return err
		}

		return nil
	})

	return tag, value, ok, err
}
