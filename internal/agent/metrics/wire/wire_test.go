package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestFieldsOfAllKinds(t *testing.T) {
	t.Parallel()
	msg := []byte{
		0x08,
		0x96,
		0x01,
		0x11,
		0,
		0,
		0,
		0,
		0,
		0,
		0xf0,
		0x3f,
		0x1a,
		2,
		'h',
		'i',
		0x25,
		0,
		0,
		0x80,
		0x3f,
		0x28,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0x01,
	}

	type field struct {
		Number protowire.Number
		Text   string
		Value  float64
	}

	var got []field

	err := Each(msg, func(f Field) error {
		out := field{Number: f.Number, Text: string(f.Bytes)}

		switch f.Type {
		case protowire.VarintType:
			out.Value = float64(f.Int())
		case protowire.Fixed64Type:
			out.Value = f.Float64()
		case protowire.Fixed32Type:
			out.Value = f.Float32()
		case protowire.BytesType:
		}

		got = append(got, out)

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]field{{1, "", 150}, {2, "", 1}, {3, "hi", 0}, {4, "", 1}, {5, "", -1}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	t.Parallel()

	for _, msg := range [][]byte{{0x08}, {0x00, 0x01}, {0x1a, 5, 'x'}, {0x11, 1, 2}, {0x25, 1}, {0x0b},
		{0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}} {
		if err := Each(msg, func(Field) error { return nil }); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v", msg, err)
		}
	}

	stop := errors.New("enough")
	if err := Each([]byte{0x08, 1, 0x08, 2}, func(Field) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the caller's: %v", err)
	}
}
