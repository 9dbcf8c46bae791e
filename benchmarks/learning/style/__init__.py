"""Style personalisation: simulated users want a house style; arms differ in what is made of what they say."""
