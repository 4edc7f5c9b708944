package spec_test

import (
	"errors"
	"fmt"

	"trainyard/internal/fault"
	"trainyard/internal/spec"
)

func ExampleParse() {
	file, err := spec.Parse([]byte(`
name: resnet
run: python train.py --epochs 90
resources: {gpus: 1..4, gpu: A100, memory: 32GB}
expect: 2h
`), spec.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}

	s := file.Jobs[0].Spec
	fmt.Println(s.Name, s.Resources.GPUs.Min, s.Resources.GPUs.Max, s.Expect)
	// Output: resnet 1 4 2h
}

// Every mistake of a file is reported at once, with its line and column.
func ExampleParse_mistakes() {
	_, err := spec.Parse([]byte("name: resnet\nrun: python train.py\npriority: 101\nretry: often\n"), spec.Options{})

	var mistakes fault.List
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			fmt.Printf("%d:%d %s\n", m.Line, m.Column, m.Field)
		}
	}
	// Output:
	// 3:11 priority
	// 4:8 retry
}
