package nodes
import ("testing";"time";"fmt")
func TestZ(t *testing.T){
 try:=func(name string,f func(m *idleModel)){ m:=fitted; f(&m)
  for seed:=uint64(1);seed<=2;seed++{ s:=measure(t,idle(IdleOptions{Length:2000*time.Hour,Seed:seed},m),SummitSize)
  fmt.Printf("%-14s ev %.1f mean %.0f empty %.3f pool %v leaves %v %.1f frags %v %.0f gaps %v\n",name,s.perHour,s.mean,s.empty,s.pool,s.leaves,s.meanLeave,s.frags,s.meanFrag,s.gaps)}}
 try("a",func(m *idleModel){m.slow[2]=1.5;m.otherwise=.85;m.goes=[2]float64{.1,.8};m.lasts=[2]float64{1.4,3.4};m.large=.051})
 try("b",func(m *idleModel){m.slow[2]=1.5;m.otherwise=.85;m.goes=[2]float64{.05,.85};m.lasts=[2]float64{1.6,3.4};m.large=.053;m.small[2]=1.6})
 try("c",func(m *idleModel){m.slow=[3]float64{1.1,1.9,1.5};m.otherwise=.84;m.goes=[2]float64{.1,.85};m.lasts=[2]float64{1.8,3.4};m.large=.053;m.small[2]=1.5;m.again=.25;m.soon=65})
}
