def draw(a,b): return []
