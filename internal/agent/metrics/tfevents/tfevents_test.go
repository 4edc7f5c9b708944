package tfevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/test/fuzzing"
)

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}

	return data
}

// written writes readings as "step tag=value".
func written(all []reading.Reading) string {
	var out []string
	for _, r := range all {
		for _, v := range r.Values {
			out = append(out, fmt.Sprintf("%g %s=%.4g", r.Step.Value, v.Name, v.Value))
		}
	}

	return strings.Join(out, "; ")
}

// The files were made by the writers that they are named after.
func TestFilesOfRealWriters(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ file, want string }{
		{"tensorboard-v2.tfevents", "0 epoch_loss=1; 1 epoch_loss=0.5; 2 epoch_loss=0.3333; 3 epoch_loss=0.25; 4 " +
			"epoch_loss=0.2"},
		{"pytorch.tfevents", "0 train/loss=1; 0 val/loss=1.5; 0 val/double=1.5; 1 train/loss=0.5; 1 val/loss=0.75; 1 " +
			"val/double=0.75; " +
			"2 train/loss=0.3333; 2 val/loss=0.5; 2 val/double=0.5; 3 train/loss=0.25; 3 val/loss=0.375; 3 val/double=0.375; " +
			"4 train/loss=0.2; 4 val/loss=0.3; 4 val/double=0.3"},
		{"tensorboardx.tfevents", "0 loss=2; 0 acc=0; 10 loss=1; 20 loss=0.6667; 30 loss=0.5; 40 loss=0.4; 50 " +
			"loss=0.3333; 50 acc=0.25; 60 loss=0.2857; 70 loss=0.25; 80 loss=0.2222; 90 loss=0.2; " +
			"100 loss=0.1818; 100 acc=0.5; 110 loss=0.1667; 120 loss=0.1538; 130 loss=0.1429; 140 loss=0.1333; 150 " +
			"loss=0.125; 150 acc=0.75; 160 loss=0.1176; 170 loss=0.1111; 180 loss=0.1053; 190 loss=0.1; 200 loss=NaN"},
		{"keras-train.tfevents", "0 epoch_loss=6.55; 0 epoch_mae=2.041; 0 epoch_learning_rate=0.01; 1 epoch_loss=3.463; 1 " +
			"epoch_mae=1.477; 1 epoch_learning_rate=0.01; 2 epoch_loss=1.853; 2 epoch_mae=1.067; 2 epoch_learning_rate=0.01"},
	} {
		var d Decoder
		data := read(t, test.file)
		got, used, err := d.Decode(data)
		if err != nil || used != len(data) || d.Damaged != 0 {
			t.Errorf("%s: used %d of %d, damaged %d, %v", test.file, used, len(data), d.Damaged, err)
		}

		if diff := cmp.Diff(test.want, written(got)); diff != "" {
			t.Errorf("%s: %s", test.file, diff)
		}

		if len(got) > 0 && got[0].At < 1.6e9 {
			t.Errorf("%s: written at %f", test.file, got[0].At)
		}
	}
}

// A file that grows by any pieces is read as the whole is.
func TestAFileThatGrows(t *testing.T) {
	t.Parallel()
	data := read(t, "tensorboardx.tfevents")
	var whole Decoder
	want, _, err := whole.Decode(data)
	if err != nil {
		t.Fatal(err)
	}

	rapid.Check(t, func(t *rapid.T) {
		var d Decoder
		var got []reading.Reading
		used := 0

		for end := 0; end < len(data); {
			end = min(len(data), end+rapid.IntRange(1, 700).Draw(t, "piece"))
			part, n, err := d.Decode(data[used:end])
			if err != nil {
				t.Fatal(err)
			}

			used += n
			got = append(got, part...)
		}

		if written(got) != written(want) {
			t.Fatalf("got %s", written(got))
		}
	})
}

// frame makes a record as the format has it.
func frame(record []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(record)))
	out = binary.LittleEndian.AppendUint32(out, masked(out))
	out = append(out, record...)

	return binary.LittleEndian.AppendUint32(out, masked(record))
}

// point makes an event with one scalar.
func point(step byte, value float32) []byte {
	scalar := append([]byte{0x0a, 1, 'x', 0x15}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(value))...)
	summary := append([]byte{0x0a, byte(len(scalar))}, scalar...)
	return append([]byte{0x10, step, 0x2a, byte(len(summary))}, summary...)
}

func TestDamage(t *testing.T) {
	t.Parallel()
	flipped := frame(point(2, 2))
	flipped[len(flipped)-1] ^= 1
	badLength := frame(point(2, 2))
	badLength[0] ^= 1
	for _, test := range []struct {
		name    string
		records [][]byte
		want    string
		damaged int
		err     error
	}{
		{"a record with a wrong checksum is left out", [][]byte{frame(point(1, 1)), flipped, frame(point(3, 3))}, "1 x=1; 3 x=3", 1, nil},
		{"a record that is no message is left out", [][]byte{frame(point(1, 1)), frame([]byte{0xff, 0xff}), frame(point(3, 3))}, "1 x=1; 3 x=3", 1, nil},
		{"a length that cannot be trusted is the end", [][]byte{frame(point(1, 1)), badLength, frame(point(3, 3))}, "1 x=1", 0, ErrFraming},
		{"a large record is stepped over", [][]byte{frame(point(1, 1)), frame(make([]byte, MaxRecord+1)), frame(point(3, 3))}, "1 x=1; 3 x=3", 0, nil},
		{"an empty record says nothing", [][]byte{frame(nil), frame(point(3, 3))}, "3 x=3", 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var data []byte
			for _, r := range test.records {
				data = append(data, r...)
			}

			var d Decoder
			var got []reading.Reading

			var err error
			for used, end := 0, 0; end < len(data) && err == nil; {
				end = min(len(data), used+MaxFrame)
				var part []reading.Reading
				var n int
				part, n, err = d.Decode(data[used:end])
				got, used = append(got, part...), used+n
			}

			if written(got) != test.want || d.Damaged != test.damaged || !errors.Is(err, test.err) {
				t.Errorf("got %q, damaged %d, %v", written(got), d.Damaged, err)
			}
		})
	}
}

func TestNumbersOfHalfLength(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		bits uint16
		kind int64
		want float64
	}{
		{0x3c00, kindHalf, 1}, {0xc000, kindHalf, -2}, {0x0001, kindHalf, 0x1p-24}, {0x7c00, kindHalf, math.Inf(1)},
		{0xfc00, kindHalf, math.Inf(-1)},
		{0x3f80, kindBfloat16, 1}, {0xc040, kindBfloat16, -3},
	} {
		if got := short(test.bits, test.kind); got != test.want {
			t.Errorf("%#x of kind %d is %g, want %g", test.bits, test.kind, got, test.want)
		}
	}

	if got := short(0x7e00, kindHalf); !math.IsNaN(got) {
		t.Errorf("NaN is %g", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"tensorboard-v2", "pytorch", "tensorboardx", "keras-train"} {
		data := read(f, name+".tfevents")
		f.Add(data[:min(len(data), 1500)], false)
		f.Add(data[headSize:min(len(data), 200)], true)
	}

	f.Add(fuzzing.Long(frame([]byte("x"))), false)
	f.Add(fuzzing.Long([]byte("\x2a\x02\x0a")), true)

	f.Fuzz(func(t *testing.T, data []byte, framed bool) {
		defer fuzzing.Bounded(t)()

		if framed { // past the checksums, which chance does not hit
			data = frame(data)
		}

		var d Decoder
		got, used, err := d.Decode(data)
		if used < 0 || used > len(data) {
			t.Fatalf("used %d of %d", used, len(data))
		}

		if err == nil && framed && used != len(data) {
			t.Errorf("a whole record was not taken: %d of %d", used, len(data))
		}

		for _, r := range got {
			if len(r.Values) == 0 {
				t.Error("a reading that says nothing")
			}
		}
	})
}
