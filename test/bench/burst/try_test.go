package burst

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	list, err := load("/work/shared/data")
	if err != nil { t.Fatal(err) }
	w := &window{name: "oct09", from: "2017-10-09", to: os.Getenv("TO"), nodes: 32}
	if err := w.cut(list); err != nil { t.Fatal(err) }
	fmt.Println(len(w.tasks), work(w.tasks))
	for _, f := range strings.Split(os.Getenv("VS"), ",") {
		v, _ := strconv.ParseFloat(f, 64)
		b := time.Now()
		o, _, err := yardRun{value: v, blind: os.Getenv("BLIND") != "", never: v == 0}.run(w)
		fmt.Printf("%v %+v %v %v\n", v, o, err, time.Since(b))
	}
}
