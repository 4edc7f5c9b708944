package goodput

func (m *market) hurry() { m.discover() }
