package humanize_test

import (
	"fmt"
	"time"

	"trainyard/internal/humanize"
)

func ExampleCount() {
	fmt.Println(humanize.Count(1, "GPU"), humanize.Count(3, "GPU"))
	// Output: 1 GPU 3 GPUs
}

func ExampleGPUs() {
	fmt.Println(humanize.GPUs(4, "NVIDIA A100-SXM4-80GB", int64(80<<30)))
	// Output: 4× A100 80GB
}

func ExampleDollars() {
	fmt.Println(humanize.Dollars(0.81), humanize.Dollars(12345.6))
	// Output: $0.81 $12,345.60
}

func ExampleSize() {
	fmt.Println(humanize.Size(int64(24 << 30)))
	// Output: 24 GB
}

func ExampleDuration() {
	fmt.Println(humanize.Duration(90 * time.Minute))
	// Output: 1h30m
}

func ExampleTime() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	fmt.Println(humanize.Time(now.Add(2*time.Hour), now))
	fmt.Println(humanize.Time(now.Add(26*time.Hour), now))
	// Output:
	// 14:00 UTC
	// Mar 2 14:00 UTC
}

func ExampleList() {
	fmt.Println(humanize.List("ada", "bob", "eve"))
	// Output: ada, bob and eve
}
