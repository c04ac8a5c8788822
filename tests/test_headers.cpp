// What nearly every test includes is compiled once, along with this file.
