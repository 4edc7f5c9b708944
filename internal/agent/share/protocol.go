package share

import (
	"encoding/binary"
	"fmt"
)

// recordSize is the length of every record, and protocolVersion what it says of itself. native/gpushare/gpushare.c has
// the other side of the protocol.
const (
	recordSize      = 64
	protocolVersion = 1
)

// kind says what a record is about.
type kind uint32

// What the library says to the broker.
const (
	kindHello   kind = iota + 1 // its process id, bytes of its context
	kindWant                    // it wants to launch
	kindRelease                 // it has drained the GPU and gives it back, as it was asked to
	kindIdle                    // the same of its own accord, because it has nothing to launch
	kindDenied                  // an allocation failed: bytes, used by the job, cap of the job, free on the GPU
	kindDemand                  // looks at its queue since the last report, how many found that empty, launches
)

// What the broker says to the library.
const (
	kindGrant   kind = iota + 65 // launch; the value says whether to keep the queue short
	kindRevoke                   // give the GPU back
	kindContend                  // keep the queue short, or do not any more
	kindMode                     // 0: launch freely, 1: only when granted; and whether to measure demand
	kindQuiesce                  // close the connection and stay away for some milliseconds
	kindAlive                    // the broker is there
)

// record is a message of the protocol: 64 bytes, little-endian.
type record struct {
	kind  kind
	value [7]uint64
}

func (r record) encode() []byte {
	out := make([]byte, 0, recordSize)
	out = binary.LittleEndian.AppendUint32(out, uint32(r.kind))
	out = binary.LittleEndian.AppendUint32(out, protocolVersion)

	for _, v := range r.value {
		out = binary.LittleEndian.AppendUint64(out, v)
	}

	return out
}

// decode reads a record of this version of the protocol.
func decode(b []byte) (record, error) {
	if len(b) != recordSize {
		return record{}, fmt.Errorf("a record has %d bytes, got %d", recordSize, len(b))
	}

	if version := binary.LittleEndian.Uint32(b[4:]); version != protocolVersion {
		return record{}, fmt.Errorf("unknown version %d of the protocol", version)
	}

	r := record{kind: kind(binary.LittleEndian.Uint32(b))}
	for i := range r.value {
		r.value[i] = binary.LittleEndian.Uint64(b[8+8*i:])
	}

	return r, nil
}
