"""What a run costs, before it starts: FLOPs, memory, time, energy, CO2e and price."""
