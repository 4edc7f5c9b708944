package scenario_test

import (
	"fmt"
	"strings"

	"trainyard/internal/place/ordered"
	"trainyard/internal/sim/scenario"
)

func ExampleScenario_Run() {
	s, err := scenario.Parse("small.yard", []byte(`
node a 1x V100:16GB
job first  at 0s gpus 1 lasts 1h
job second at 5m gpus 1 lasts 30m
`))
	if err != nil {
		fmt.Println(err)
		return
	}

	result, decisions, err := s.Run(ordered.FIFO{})
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(strings.Count(decisions, "\n"), "decisions")
	fmt.Printf("%d of %d jobs succeeded, makespan %s\n", result.Succeeded, result.Jobs, result.Makespan)
	// Output:
	// 8 decisions
	// 2 of 2 jobs succeeded, makespan 1h30m0s
}
