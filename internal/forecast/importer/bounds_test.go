package importer

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

// A small file that unpacks to one cell of 150 MB took 762 MB of memory.
func TestARowThatIsTooLongIsRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)

	if _, err := io.WriteString(z, "seconds,command\n3,short\n4,"); err != nil {
		t.Fatal(err)
	}

	for range 50 {
		if _, err := io.WriteString(z, strings.Repeat("x", 1<<20)); err != nil {
			t.Fatal(err)
		}
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	input := &counted{in: &packed}
	_, err := ReadCSV(input)
	if err == nil || !strings.Contains(err.Error(), "a row of more than 1 MB") {
		t.Errorf("got %v", err)
	}

	whole := packed.Len() + input.n
	if input.n > whole/2 {
		t.Errorf("%d of %d packed bytes were read", input.n, whole)
	}
}

// counted counts what is read.
type counted struct {
	in io.Reader
	n  int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += n

	return n, err
}
