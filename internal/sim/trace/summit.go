package trace

import (
	"slices"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// summitJobs reads the jobs of the FreeTrain replay, with speeds from the table
// of throughputs. What growing costs is charged for each start, what shrinking
// costs is what is lost with a node; FreeTrainOptions says why.
type summitJobs struct {
	*rows.Table
	opts   Options
	models []FreeTrainModel
}

func openSummitJobs(f *rows.File, opts Options) (*summitJobs, error) {
	models := FreeTrainModels()

	if opts.Tables != "" {
		var err error
		models, err = rows.All(opts.Tables, readSummitModels)
		if err != nil {
			return nil, err
		}
	}

	t, err := rows.WithHeader(
		f,
		',',
		"job",
		"model",
		"t_submit_s",
		"scale_up_s",
		"scale_down_s",
		"min_nodes",
		"max_nodes",
		"total_images",
	)
	if err != nil {
		return nil, err
	}

	return &summitJobs{t, opts, models}, nil
}

func (s *summitJobs) job() (*sim.Job, error) {
	if err := s.Read(); err != nil {
		return nil, err
	}

	name, model := s.Text("job"), s.Text("model")
	at := s.Seconds("t_submit_s")
	up := s.Seconds("scale_up_s")
	down := s.Seconds("scale_down_s")
	least := s.Count("min_nodes")
	most := s.Count("max_nodes")
	images := s.Number("total_images")

	i := slices.IndexFunc(s.models, func(m FreeTrainModel) bool { return m.Name == model })
	switch {
	case s.Err != nil:
	case i < 0:
		s.Fail("model", "no throughputs for model %q", rows.Short(model))
	case least < 1 || most < least || most > job.MaxCount:
		s.Fail("max_nodes", "invalid range of nodes: %d to %d", least, most)
	case images <= 0 || images > 1e15:
		s.Fail("total_images", "must be between 1 and 1e15, got %g", images)
	}

	if s.Err != nil {
		return nil, s.Err
	}

	speed := s.models[i].Speed(images, s.opts.start(up), s.opts.Save)
	spec := elastic(speed, strings.ToLower(s.models[i].Name), most)
	spec.Resources.Nodes.Min = least

	return &sim.Job{Name: strings.Clone(name), At: at, Owner: "mix", Spec: spec, MaxLoss: down}, nil
}

// readSummitModels reads images a second by model and number of nodes.
func readSummitModels(f *rows.File) ([]FreeTrainModel, error) {
	t, err := rows.WithHeader(f, ',', "model", "nodes", "images_per_s")
	if err != nil {
		return nil, err
	}

	var models []FreeTrainModel
	err = t.Each(func() {
		model := t.Text("model")
		nodes := t.Count("nodes")

		rate := t.Number("images_per_s")
		if nodes > job.MaxCount || rate < 0 || rate > 1e15 {
			t.Fail("images_per_s", "invalid throughput of %d nodes: %g images per second", nodes, rate)
		}

		if t.Err != nil || nodes == 0 {
			return
		}

		i := slices.IndexFunc(models, func(m FreeTrainModel) bool { return m.Name == model })
		if i < 0 {
			i = len(models)
			models = append(models, FreeTrainModel{Name: strings.Clone(model)})
		}

		models[i].Nodes, models[i].Samples = append(models[i].Nodes, nodes), append(models[i].Samples, rate)
	})

	if err == nil && len(models) == 0 {
		err = fault.New(fault.Invalid, "bad_tables", "%s has no throughputs", f.Name)
	}

	return models, err
}
