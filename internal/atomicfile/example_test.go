package atomicfile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"trainyard/internal/atomicfile"
)

func ExampleWrite() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}

	defer func() { _ = os.RemoveAll(dir) }()

	path := filepath.Join(dir, "agent.json")
	if err := atomicfile.Write(path, []byte("{}"), atomicfile.SingleWriter()); err != nil {
		fmt.Println(err)
		return
	}

	text, err := os.ReadFile(path)
	fmt.Println(string(text), err)
	// Output: {} <nil>
}
