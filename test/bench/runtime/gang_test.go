package runtime_test

import (
	"context"
	"fmt"

	"trainyard/internal/quantile"
)

// ranks are the sizes of the gangs that are measured; the last is how many nodes there are.
var ranks = []int{2, 8, 32}

// openGang starts a node for each rank, all of them on this machine.
func openGang(ctx context.Context, b *bench) error {
	return b.join(ctx, ranks[len(ranks)-1], "--cpus", "1", "--fake-gpus", "none", "--probe", "off", "--container-socket", "none")
}

// measureGang measures how long it takes until the programs of all ranks have started.
func measureGang(ctx context.Context, b *bench) error {
	samples := 10
	if b.quick {
		samples = 2
	}

	for _, n := range ranks {
		file := fmt.Sprintf("run: %s\nresources: {nodes: %d, cpus: 1}\n", firstLine, n)
		var took []float64

		for i := range samples + 1 {
			one, err := b.startsJob(ctx, file, n)
			if err != nil {
				return err
			}

			if i > 0 { // the first start opens connections and makes folders
				took = append(took, one.Seconds())
			}
		}

		b.figures[fmt.Sprintf("gang%d_s", n)] = quantile.Median(took)
	}

	return nil
}
