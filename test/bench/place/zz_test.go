package place

import (
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"strconv"

	"trainyard/internal/place/rules"
)

func TestZZ(t *testing.T) {
	runtime.GOMAXPROCS(1)
	n, _ := strconv.Atoi(os.Getenv("ZN"))
	c := &scale{"x", n, 10000, 500, 20, 1}
	for _, load := range []float64{0, 1} {
		y := newYard(c, load)
		f, _ := os.Create("/tmp/h/rcpu" + strconv.Itoa(int(load)))
		_ = pprof.StartCPUProfile(f)
		p := rules.New(rules.Defaults())
		b := processor()
		plan := p.Plan(y.view())
		t.Log(load, "full", processor()-b, sizeOf(&plan), plan.Again)
		pprof.StopCPUProfile()
		if load == 1 {
			f, _ := os.Create("/tmp/h/rcpu2")
			_ = pprof.StartCPUProfile(f)
			for range 5 {
				y.do(&plan)
				y.step()
				b := processor()
				plan = p.Plan(y.view())
				t.Log("step", processor()-b, sizeOf(&plan))
			}
			pprof.StopCPUProfile()
		}
	}
}
