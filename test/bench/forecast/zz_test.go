package main
import ("testing";"fmt";"math";"hash/fnv";"sort";"trainyard/internal/forecast";"trainyard/internal/forecast/curve")
func TestZZ(t *testing.T) {
	list, _, _ := readAll("../../../../shared/data")
	m := map[string][4][]float64{}
	for i := range list { s := &list[i]
		f := fnv.New32a(); f.Write([]byte(s.Group)); if f.Sum32()%2 != 0 {continue}
		k := s.source+"/"+s.Features.Task
		e := m[k]
		for p, share := range forecast.Parts { c, ok := s.until(share); if !ok {continue}
		e[p]=append(e[p], math.Log(curve.Best(&c).End/s.End)) }
		m[k]=e
 		if s.source=="nanogpt"||s.source=="mlperf"||s.source=="pollux" { a := m["all/"]; for p := range 4 { if c, ok := s.until(forecast.Parts[p]); ok { a[p]=append(a[p], 100*math.Abs(curve.Best(&c).End-s.End)/s.End) } }; m["all/"]=a } }
	var ks []string; for k := range m { ks=append(ks,k) }; sort.Strings(ks)
	for _, k := range ks { fmt.Printf("%-26s",k); for p := range 4 { e := m[k][p]; if len(e)==0 { fmt.Printf("%26s","-"); continue}; fmt.Printf(" %3d: %5.2f %5.2f %5.2f |", len(e), quantile(e,.2), quantile(e,.5),quantile(e,.8)) }; fmt.Println() }
}
