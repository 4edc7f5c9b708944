package wandbfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/test/fuzzing"
)

func written(all []reading.Reading) string {
	var out []string
	for _, r := range all {
		for _, v := range r.Values {
			out = append(out, fmt.Sprintf("%g %s=%.4g", r.Step.Value, v.Name, v.Value))
		}
	}

	return strings.Join(out, "; ")
}

// The file was made by the released client, offline.
func TestAFileOfTheRealClient(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/offline.wandb")
	if err != nil {
		t.Fatal(err)
	}

	var d Decoder
	got, used, err := d.Decode(data)
	if err != nil || used != len(data) || d.Damaged != 0 {
		t.Errorf("used %d of %d, damaged %d, %v", used, len(data), d.Damaged, err)
	}

	text := written(got)
	for _, want := range []string{"0 loss=1; 0 nan=NaN; 0 val/acc=0;", "145 loss=0.03333; 145 nan=NaN; 145 nested/a=1.5; 145 val/acc=0.9667"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}

	if len(got) != 30 {
		t.Errorf("%d readings", len(got))
	}

	if got[0].At < 1.7e9 {
		t.Errorf("written at %f", got[0].At)
	}
}

// record makes a record as the format has it.
func record(kind byte, payload []byte) []byte {
	sum := crc32.Update(crc32.ChecksumIEEE([]byte{kind}), crc32.IEEETable, payload)
	out := binary.LittleEndian.AppendUint32(nil, sum)
	out = binary.LittleEndian.AppendUint16(out, uint16(len(payload)))

	return append(append(out, kind), payload...)
}

// history makes a message with one metric at a step.
func message(step int, value string) []byte {
	item := func(name, value string) []byte {
		in := append([]byte{0x12, byte(len(name))}, name...)
		in = append(append(in, 0x82, 0x01, byte(len(value))), value...)
		return append([]byte{0x0a, byte(len(in))}, in...)
	}

	in := append(item("_step", fmt.Sprint(step)), item("loss", value)...)

	return append([]byte{0x12, byte(len(in))}, in...)
}

// Records are filled up at the end of a block, and a message may go over several.
func TestBlocks(t *testing.T) {
	t.Parallel()
	data := []byte(fileHead)

	want := []string{}
	for step := 0; len(data) < 3*blockSize; step++ {
		msg := message(step, "0.5")
		left := blockSize - len(data)%blockSize
		switch {
		case left < recordHead:
			data = append(data, make([]byte, left)...)
			data = append(data, record(1, msg)...)
		case left < recordHead+len(msg):
			data = append(data, record(2, msg[:left-recordHead])...)
			data = append(data, record(4, msg[left-recordHead:])...)
		default:
			data = append(data, record(1, msg)...)
		}

		want = append(want, fmt.Sprintf("%d loss=0.5", step))
	}

	rapid.Check(t, func(t *rapid.T) {
		var d Decoder
		var got []reading.Reading
		used := 0

		for end := 0; end < len(data); {
			end = min(len(data), end+rapid.IntRange(1, 5000).Draw(t, "piece"))
			part, n, err := d.Decode(data[used:end])
			if err != nil {
				t.Fatal(err)
			}

			used += n
			got = append(got, part...)
		}

		if written(got) != strings.Join(want, "; ") || d.Damaged > 0 {
			t.Fatalf("%d readings instead of %d, damaged %d", len(got), len(want), d.Damaged)
		}
	})
}

func TestDamage(t *testing.T) {
	t.Parallel()
	bad := record(1, message(2, "2"))
	bad[0] ^= 1

	join := func(parts ...[]byte) []byte {
		out := []byte(fileHead)
		for _, p := range parts {
			out = append(out, p...)
		}

		return out
	}

	for _, test := range []struct {
		name    string
		data    []byte
		want    string
		damaged int
		err     error
	}{
		{"a wrong checksum", join(record(1, message(1, "1")), bad, record(1, message(3, "3"))), "1 loss=1; 3 loss=3", 1, nil},
		{"no message", join(record(1, []byte{0xff}), record(1, message(3, "3"))), "3 loss=3", 1, nil},
		{"another file", []byte("something else"), "", 0, ErrFormat},
		{"a kind of record that does not exist", join(record(1, message(1, "1")), record(9, nil)), "1 loss=1", 0, ErrFormat},
		{"only the beginning", []byte(fileHead[:3]), "", 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var d Decoder
			got, _, err := d.Decode(test.data)
			if written(got) != test.want || d.Damaged != test.damaged || !errors.Is(err, test.err) {
				t.Errorf("got %q, damaged %d, %v", written(got), d.Damaged, err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	data, err := os.ReadFile("testdata/offline.wandb")
	if err != nil {
		f.Fatal(err)
	}

	f.Add(data[:2000], false)
	f.Add(message(1, "NaN"), true)
	f.Add(fuzzing.Long(data[:2000]), false)

	f.Fuzz(func(t *testing.T, data []byte, framed bool) {
		defer fuzzing.Bounded(t)()

		if framed {
			data = append([]byte(fileHead), record(1, data[:min(len(data), 1000)])...)
		}

		var d Decoder
		_, used, err := d.Decode(data)
		if used < 0 || used > len(data) {
			t.Fatalf("used %d of %d", used, len(data))
		}

		if framed && (err != nil || used != len(data)) {
			t.Errorf("a whole record was not taken: %d of %d, %v", used, len(data), err)
		}
	})
}
