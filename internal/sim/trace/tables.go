package trace

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim/trace/nodes"
)

// Task is a kind of job of a published workload: a model that is trained for so
// many epochs, and how long an epoch takes where.
type Task struct {
	Name   string
	Model  string
	Batch  int
	Epochs int
	Memory job.Bytes // of a GPU, that it needs; 0 if that is not known
	Times  []EpochTime
}

// EpochTime is how long an epoch takes on so many GPUs of a kind.
type EpochTime struct {
	GPU     string
	GPUs    int
	Seconds float64
}

// Speed returns the task's speed. Its unit of work is the epoch.
func (t *Task) Speed(start, save time.Duration) *job.Speed {
	rates := make([]job.Rate, len(t.Times))
	for i, e := range t.Times {
		rates[i] = job.Rate{GPU: e.GPU, GPUs: e.GPUs, PerSecond: 1 / e.Seconds}
	}

	return job.NewSpeed(float64(t.Epochs), start, save, rates...)
}

// Span returns how long the task takes where it is fastest and where it is slowest.
func (t *Task) Span() (fastest, slowest time.Duration) {
	for i, e := range t.Times {
		d := job.Seconds(e.Seconds * float64(t.Epochs))
		if i == 0 || d < fastest {
			fastest = d
		}

		slowest = max(slowest, d)
	}

	return fastest, slowest
}

// Most returns the greatest number of GPUs that the task was measured on.
func (t *Task) Most() int {
	most := 0
	for _, e := range t.Times {
		most = max(most, e.GPUs)
	}

	return most
}

// Single returns how long the task takes on one GPU of the kind that is fastest at that.
func (t *Task) Single() time.Duration {
	var least time.Duration
	for _, e := range t.Times {
		if d := job.Seconds(e.Seconds * float64(t.Epochs)); e.GPUs == 1 && (least == 0 || d < least) {
			least = d
		}
	}

	return least
}

// Names of the GPU kinds of the ANDREAS tables.
const (
	Tesla  = "TESLA"
	Turing = "TURING"
)

// andreasModels are the profiles behind the ANDREAS workload: seconds for an
// epoch on one TESLA, two TESLAs and one TURING.
var andreasModels = map[string]struct {
	batch               int
	tesla, two, oneSlow float64
}{
	"LSTM-big":     {8192, 43.0842, 30.5512, 110.7112},
	"LSTM-small":   {8192, 43.0261, 30.5871, 110.6581},
	"EfficientNet": {4096, 51.6221, 41.2372, 88.9881},
	"ConvNet":      {8192, 20.5382, 17.8042, 41.2582},
}

// AndreasJobs returns the ten job types of the ANDREAS workload. A job runs on
// one or two TESLAs of one node, or on one TURING.
func AndreasJobs() []Task {
	types := []struct {
		model  string
		epochs int
	}{
		{"LSTM-big", 120},
		{"LSTM-small", 120},
		{"EfficientNet", 120},
		{"LSTM-big", 160},
		{"LSTM-small", 160},
		{"EfficientNet", 160},
		{"LSTM-big", 320},
		{"LSTM-small", 320},
		{"ConvNet", 320},
		{"ConvNet", 160},
	}

	tasks := make([]Task, len(types))
	for i, t := range types {
		m := andreasModels[t.model]
		tasks[i] = Task{
			Name: fmt.Sprintf("J%d", i+1), Model: t.model, Batch: m.batch, Epochs: t.epochs,
			Times: []EpochTime{{Tesla, 1, m.tesla}, {Tesla, 2, m.two}, {Turing, 1, m.oneSlow}},
		}
	}

	return tasks
}

// AndreasTariff is the energy tariff of the ANDREAS workload. Two busy GPUs of a
// TURING node are published as 470 W at the price of 480 W; the price is taken
// for true. What an idle node draws is not published: the first entries continue
// the lines backwards, for those who do not let idle nodes be switched off.
func AndreasTariff() *fleet.Tariff {
	return &fleet.Tariff{
		Energy: 0.17168313, PUE: 1.33,
		Nodes: []fleet.NodePrice{
			{GPU: Tesla, Watts: []float64{360, 530, 700, 870, 1040}, Off: true},
			{GPU: Turing, Watts: []float64{320, 400, 480}, Off: true},
		},
	}
}

// AndreasNodes returns n nodes of the ANDREAS cluster: TESLA with four GPUs and
// TURING with two, in turn.
func AndreasNodes(n int) []fleet.Node {
	return inTurn(n, kindOfNode{Tesla, 4, 32 << 30}, kindOfNode{Turing, 2, 24 << 30})
}

// AndreasWeights are the least and the greatest cost of being late at k = 1: an hour of one busy TURING and of
// two busy TESLAs.
func AndreasWeights() (least, greatest money.PerHour) {
	t := AndreasTariff()
	return t.Rate(&t.Nodes[1], 1), t.Rate(&t.Nodes[0], 2)
}

// datacenterTimes are seconds for an epoch of AlexNet over 130,000 images on 1
// to 8 GPUs, by batch size. They are those of the jobs with 500 epochs; the
// published times of longer jobs differ from a multiple of these by at most 0.3 %.
var datacenterTimes = []struct {
	batch    int
	memory   job.Bytes
	k80, m60 [8]float64
}{
	{
		128, 4 << 30,
		[8]float64{169.555793, 167.999729, 162.439943, 155.879225, 148.918135, 141.756859, 134.481191, 127.134028},
		[8]float64{170.311101, 166.258094, 162.301539, 159.750483, 156.104141, 151.910155, 147.403231, 142.700719},
	},
	{
		256, 6 << 30,
		[8]float64{163.981157, 159.07209, 149.659712, 139.121506, 128.132969, 116.919266, 105.576898, 94.154113},
		[8]float64{168.733293, 160.623253, 152.903016, 147.251552, 140.498092, 133.193633, 125.574318, 117.758217},
	},
	{
		512, 8 << 30,
		[8]float64{161.225328, 154.642419, 143.303973, 130.776643, 117.773759, 104.533099, 91.156566, 77.695112},
		[8]float64{168.532945, 158.046939, 148.213366, 141.007826, 132.696422, 123.832086, 114.651788, 105.274016},
	},
	{
		1024, 12 << 30,
		[8]float64{159.910395, 152.495881, 140.194856, 126.672204, 112.660901, 98.405272, 84.010029, 69.527527},
		[8]float64{168.66521, 156.863604, 145.887764, 137.897441, 128.798296, 119.144741, 109.174379, 99.006013},
	},
}

// DatacenterJobs returns the fifteen job types of the datacenter workload: four
// batch sizes, each for 500, 1000, 1500 and 2000 epochs. J13 does not exist.
func DatacenterJobs() []Task {
	var tasks []Task
	for i, epochs := range []int{500, 1000, 1500, 2000} {
		for n, row := range datacenterTimes {
			number := 4*i + n + 1
			if number == 13 {
				continue
			}

			t := Task{Name: fmt.Sprintf("J%d", number), Model: "AlexNet", Batch: row.batch, Epochs: epochs, Memory: row.memory}
			for g := range row.k80 {
				t.Times = append(t.Times, EpochTime{"K80", g + 1, row.k80[g]})
			}

			for g := range row.m60 {
				t.Times = append(t.Times, EpochTime{"M60", g + 1, row.m60[g]})
			}

			tasks = append(tasks, t)
		}
	}

	return tasks
}

// DatacenterTariff is the tariff of the datacenter workload's nodes. A node that
// nothing uses costs nothing.
func DatacenterTariff() *fleet.Tariff {
	return &fleet.Tariff{Nodes: []fleet.NodePrice{
		{GPU: "K80", Hourly: []money.PerHour{0, 0.56, 1.13, 1.69, 2.25, 2.8075, 3.365, 3.9225, 4.48}, Off: true},
		{GPU: "M60", Hourly: []money.PerHour{0, 0.62, 1.24, 1.86, 2.48, 3.10, 3.72, 4.34, 4.96}, Off: true},
	}}
}

// DatacenterNodes returns n nodes of the datacenter: eight K80 and eight M60, in turn.
func DatacenterNodes(n int) []fleet.Node {
	return inTurn(n, kindOfNode{"K80", 8, 12 << 30}, kindOfNode{"M60", 8, 8 << 30})
}

// FreeTrainModel is how many samples a second a model does on so many Summit
// nodes. A node of six GPUs counts as one GPU: nothing in the published workload
// divides it.
type FreeTrainModel struct {
	Name    string
	Nodes   []int
	Samples []float64 // for a second, on as many nodes
}

// Speed returns the model's speed for a job of so many samples.
func (m *FreeTrainModel) Speed(samples float64, start, save time.Duration) *job.Speed {
	rates := make([]job.Rate, len(m.Nodes))
	for i, n := range m.Nodes {
		rates[i] = job.Rate{GPUs: n, PerSecond: m.Samples[i]}
	}

	return job.NewSpeed(samples, start, save, rates...)
}

// FreeTrainSamples is the work of each job of the FreeTrain workloads: 100 epochs of ImageNet.
const FreeTrainSamples = 130e6

// FreeTrainModels returns the seven models of the ImageNet mix, in the order in
// which its jobs cycle through them.
func FreeTrainModels() []FreeTrainModel {
	table := []struct {
		name string
		at   [7]float64
	}{
		{"AlexNet", [7]float64{7115.3, 13071.7, 21066.1, 40484.9, 74002.9, 130762.0, 202135.4}},
		{"vgg16", [7]float64{1193.3, 2389.2, 4691.7, 9257.9, 18348.9, 36208.5, 70151.7}},
		{"resnet18", [7]float64{5218.8, 10582.5, 20436.0, 39584.0, 78023.8, 144762.5, 262723.0}},
		{"DenseNet", [7]float64{989.9, 1952.5, 3849.8, 7608.1, 14993.2, 28812.2, 57773.9}},
		{"mnasnet1", [7]float64{3245.7, 6001.9, 11489.3, 23075.6, 43899.7, 83474.2, 160493.6}},
		{"shufflenet", [7]float64{2831.0, 5259.0, 9988.0, 20379.2, 38895.3, 74125.1, 145081.5}},
		{"mobilenet", [7]float64{3039.9, 5893.0, 11386.0, 22024.8, 42488.4, 82268.3, 155213.8}},
	}

	models := make([]FreeTrainModel, len(table))
	for i, row := range table {
		models[i] = FreeTrainModel{Name: row.name, Nodes: []int{1, 2, 4, 8, 16, 32, 64}, Samples: row.at[:]}
	}

	return models
}

type kindOfNode struct {
	gpu    string
	gpus   int
	memory job.Bytes
}

// inTurn returns n nodes of these kinds in turn, named n1, n2, … so that they sort by number.
func inTurn(n int, kinds ...kindOfNode) []fleet.Node {
	list := make([]fleet.Node, n)
	for i := range list {
		k := kinds[i%len(kinds)]
		list[i] = nodes.New(nodes.Name("n", i+1, n), k.gpu, k.gpus, k.memory)
	}

	return list
}
