package forecaster

import "context"

// Stepwise does what Run does, but only when it is called: for a yard that lives in virtual time. Its forecaster must
// not run.
type Stepwise struct{ f *Forecaster }

// Stepwise reads what is stored and returns the forecaster for use in steps.
func (f *Forecaster) Stepwise(ctx context.Context) (Stepwise, error) {
	if err := f.survey(ctx); err != nil {
		return Stepwise{}, err
	}

	close(f.ready)

	return Stepwise{f}, f.trainer.load(ctx)
}

// Forecast makes the forecasts that are due and writes what has changed.
func (s Stepwise) Forecast(ctx context.Context) { s.f.renew(ctx) }

// Learn adds the jobs that have ended to the history. It costs the more the more jobs there are.
func (s Stepwise) Learn(ctx context.Context) { s.f.finish(ctx) }

// Close writes what is not written yet and learns from the last jobs.
func (s Stepwise) Close(ctx context.Context) {
	s.f.flush(ctx, true)
	s.f.finish(ctx)
}
