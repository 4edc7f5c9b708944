// Package wandbfile reads the files that the W&B client writes beside, or instead of,
// talking to its service: records in blocks, as LevelDB has them, each with a message of
// which the history is of interest. Package metrics finds the files and reads their
// bytes; this package knows no files.
package wandbfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"trainyard/internal/agent/metrics/lines"
	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/agent/metrics/wire"
)

// The format: a header, then blocks of records, none of which crosses the end of a block.
const (
	blockSize  = 32 << 10
	recordHead = 7
	// MaxFrame is how many bytes Decode must be able to see at once.
	MaxFrame = blockSize
	// maxMessage is the longest message that is put together.
	maxMessage = 1 << 20
)

// fileHead begins every file.
const fileHead = ":W&B\xe1\xbe\x00"

// ErrFormat says that a file is none of W&B's, or damaged so that nothing behind the place can be read.
var ErrFormat = errors.New("not a W&B file, or damaged")

// Decoder reads one file from its beginning. Its zero value is ready.
type Decoder struct {
	// Damaged counts records whose checksum was wrong or whose message made no sense.
	Damaged int
	pos     int64  // in the file
	message []byte // of the records so far, if it goes on in the next
	broken  bool   // some of the message is missing
}

// Decode reads the whole records that data begins with and says how many bytes they took:
// data must begin there the next time. A damaged record is counted and left out.
func (d *Decoder) Decode(data []byte) (readings []reading.Reading, used int, err error) {
	start := d.pos

	if d.pos == 0 {
		if len(data) < len(fileHead) {
			return nil, 0, nil
		}
		if string(data[:len(fileHead)]) != fileHead {
			return nil, 0, ErrFormat
		}

		d.pos = int64(len(fileHead))
	}

	for {
		rest := data[d.pos-start:]
		left := blockSize - int(d.pos%blockSize)
		if left < recordHead { // the end of a block is filled up
			if len(rest) < left {
				return readings, int(d.pos - start), nil
			}

			d.pos += int64(left)

			continue
		}

		if len(rest) < recordHead {
			return readings, int(d.pos - start), nil
		}

		length := int(binary.LittleEndian.Uint16(rest[4:]))

		kind := rest[6]
		if length > left-recordHead || kind < 1 || kind > 4 {
			return readings, int(d.pos - start), ErrFormat
		}
		if len(rest) < recordHead+length {
			return readings, int(d.pos - start), nil
		}

		payload := rest[recordHead : recordHead+length]
		d.pos += int64(recordHead + length)

		good := crc32.Update(crc32.ChecksumIEEE(rest[6:7]), crc32.IEEETable, payload) == binary.LittleEndian.Uint32(rest)
		if msg, whole := d.join(kind, payload, good); whole {
			r, err := history(msg)
			if err != nil {
				d.Damaged++
			} else if !r.Empty() {
				readings = append(readings, r)
			}
		}
	}
}

// join puts a message together from its records: whole ones, and first, middle and last pieces.
func (d *Decoder) join(kind byte, payload []byte, good bool) (msg []byte, whole bool) {
	if kind == 1 || kind == 2 {
		d.message, d.broken = d.message[:0], false
	}

	if !good || len(d.message)+len(payload) > maxMessage {
		if !good {
			d.Damaged++
		}

		d.broken = true
	}

	if d.broken {
		return nil, false
	}

	d.message = append(d.message, payload...)

	return d.message, kind == 1 || kind == 4
}

// history reads a message; it says nothing if it is another kind of record.
func history(msg []byte) (reading.Reading, error) {
	var out reading.Reading
	err := wire.Each(msg, func(f wire.Field) error {
		if f.Number != 2 || f.Type != protowire.BytesType {
			return nil
		}

		items := map[string]json.RawMessage{}
		if err := wire.Each(f.Bytes, func(f wire.Field) error { return item(f, items) }); err != nil {
			return err
		}

		if o, ok := lines.FromMap(items); ok {
			out = o.Reading
		}

		return nil
	})

	return out, err
}

// item reads one name and value of a history.
func item(f wire.Field, to map[string]json.RawMessage) error {
	if f.Type != protowire.BytesType || f.Number != 1 {
		return nil
	}

	var names []string
	var value []byte
	err := wire.Each(f.Bytes, func(f wire.Field) error {
		switch {
		case f.Type != protowire.BytesType:
		case f.Number == 1 || f.Number == 2: // the name, or its parts
			names = append(names, string(f.Bytes))
		case f.Number == 16:
			value = f.Bytes
		}

		return nil
	})

	if err == nil && len(names) > 0 && len(to) < 1000 {
		to[strings.Join(names, "/")] = value
	}

	return err
}
