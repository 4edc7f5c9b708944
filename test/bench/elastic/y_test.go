package elastic
import ("testing";"fmt";"trainyard/internal/place/goodput")
func TestY(t *testing.T) {
	o := Options{Data: "/work/shared/data"}
	for _, y := range [][2]float64{{5,0},{1,10},{0.5,10},{0.2,10},{1,30},{0.5,30}} {
		goodput.Y = y
		for _, n := range []string{"", apart, restart} {
			for _, p := range []string{"goodput-makespan:gap=10s","goodput-makespan:gap=1m"} {
			r := gavelRow(o, gavelEnd, p, n)
			if err := r.run(); err != nil { t.Fatal(err) }
			fmt.Printf("Y %v %-30s %s makespan %.2f stops %d mean %.0f util %.3f\n", y, n, p, r.makespan/3600, r.result.Stops, r.mean, r.result.Utilisation)
			}
		}
	}
}
